import assert from "node:assert/strict";
import { test } from "node:test";
import { delayMs, EventStream, Parser, SILENCE_MS, type ServerEvent, type StreamState } from "../../src/lib/sse";

test("events are read whatever the pieces", () => {
  const text = ": hi\r\nid: 7\nevent: circuit\ndata: {\"a\":\ndata: 1}\n\n\rid\ndata:x\r\rdata: lost";
  const whole = new Parser().feed(text);
  assert.deepEqual(whole, [{ id: "7", event: "circuit", data: '{"a":\n1}' }, { id: "", event: "message", data: "x" }]);
  for (let size = 1; size < text.length; size++) {
    const parser = new Parser();
    const found: ServerEvent[] = [];
    for (let at = 0; at < text.length; at += size) found.push(...parser.feed(text.slice(at, at + size)));
    assert.deepEqual(found, whole, `in pieces of ${size}`);
  }
});

test("attempts come further apart, up to a bound", () => {
  assert.deepEqual([1, 2, 3, 20].map((failures) => delayMs(failures, 1)), [500, 1_000, 2_000, 15_000]);
  assert.equal(delayMs(1, 0), 250);
});

/** A server and a clock that the test drives. */
class Scene {
  readonly states: StreamState[] = [];
  readonly events: ServerEvent[] = [];
  readonly asked: Record<string, string>[] = [];
  unauthenticated = 0;
  private readonly timers = new Map<number, { run: () => void; ms: number }>();
  private lastTimer = 0;
  private pushes: ReadableStreamDefaultController<Uint8Array>[] = [];
  replies: (number | "unreachable")[] = [];
  readonly stream = new EventStream(
    "/api/events",
    {
      fetch: (_, { headers, signal }) => {
        this.asked.push(headers);
        const reply = this.replies.shift() ?? 200;
        if (reply === "unreachable") return Promise.reject(new TypeError("no connection"));
        if (reply !== 200) return Promise.resolve(new Response("", { status: reply }));
        const body = new ReadableStream<Uint8Array>({
          start: (controller) => {
            this.pushes.push(controller);
            signal.addEventListener("abort", () => {
              try {
                controller.error(new Error("aborted"));
              } catch {
                // It has ended before.
              }
            });
          },
        });
        return Promise.resolve(new Response(body));
      },
      setTimer: (run, ms) => {
        this.timers.set(++this.lastTimer, { run, ms });
        return this.lastTimer;
      },
      clearTimer: (timer) => this.timers.delete(timer),
      random: () => 1,
    },
    { state: (state) => this.states.push(state), event: (event) => this.events.push(event), unauthenticated: () => this.unauthenticated++ },
  );

  async push(text: string): Promise<void> {
    this.pushes.at(-1)?.enqueue(new TextEncoder().encode(text));
    await this.quiet();
  }

  async cut(): Promise<void> {
    this.pushes.at(-1)?.close();
    await this.quiet();
  }

  async fire(): Promise<number> {
    const [id, timer] = [...this.timers].at(-1) ?? assert.fail("no timer is set");
    this.timers.delete(id);
    timer.run();
    await this.quiet();
    return timer.ms;
  }

  get timerCount(): number {
    return this.timers.size;
  }

  async quiet(): Promise<void> {
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
    await new Promise((done) => setImmediate(done));
  }
}

test("a cut stream resumes after the last seen event", async () => {
  const scene = new Scene();
  scene.stream.start();
  await scene.quiet();
  await scene.push("id: 41\nevent: circuit\ndata: {}\n\n");
  assert.deepEqual(scene.states, ["connecting", "live"]);
  await scene.cut();
  assert.equal(scene.states.at(-1), "reconnecting");
  assert.equal(await scene.fire(), 500);
  assert.equal(scene.asked[1]?.["Last-Event-ID"], "41");
  await scene.push("event: hello\ndata: {}\n\n");
  assert.equal(scene.states.at(-1), "live");
  assert.equal(scene.events.length, 2);
  scene.stream.stop();
});

test("after several failures it says disconnected and still tries", async () => {
  const scene = new Scene();
  scene.replies = ["unreachable", 503, "unreachable", 503, 503];
  scene.stream.start();
  await scene.quiet();
  for (let turn = 0; turn < 4; turn++) await scene.fire();
  assert.deepEqual(scene.states, ["connecting", "reconnecting", "reconnecting", "reconnecting", "disconnected", "disconnected"]);
  await scene.fire();
  await scene.push(": hello\n\n");
  assert.equal(scene.states.at(-1), "live");
  scene.stream.stop();
});

test("a stream without even a comment is taken for dead", async () => {
  const scene = new Scene();
  scene.stream.start();
  await scene.quiet();
  await scene.push(": still here\n\n");
  assert.equal(await scene.fire(), SILENCE_MS);
  assert.equal(scene.states.at(-1), "reconnecting");
  scene.stream.stop();
});

test("a session that has ended stops the attempts", async () => {
  const scene = new Scene();
  scene.replies = [401];
  scene.stream.start();
  await scene.quiet();
  assert.equal(scene.unauthenticated, 1);
  assert.equal(scene.timerCount, 0);
  scene.stream.start();
  await scene.quiet();
  await scene.push(": hello\n\n");
  assert.equal(scene.states.at(-1), "live", "a new session starts it again");
  scene.stream.stop();
});

test("a stopped stream leaves no timer and no attempt", async () => {
  const scene = new Scene();
  scene.stream.start();
  await scene.quiet();
  await scene.push(": hello\n\n");
  scene.stream.stop();
  await scene.quiet();
  assert.equal(scene.timerCount, 0);
  assert.equal(scene.asked.length, 1);
  assert.equal(scene.states.at(-1), "stopped");
});

test("a change of the network ends the wait", async () => {
  const scene = new Scene();
  scene.replies = ["unreachable"];
  scene.stream.start();
  await scene.quiet();
  scene.stream.hurry();
  await scene.quiet();
  await scene.push(": hello\n\n");
  assert.equal(scene.asked.length, 2);
  assert.equal(scene.states.at(-1), "live");
  scene.stream.stop();
});
