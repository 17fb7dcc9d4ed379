/** A worker in Node: one process of a fleet. What it hears and what it says is in `src/main.rs`. */

import { subscribe } from "node:diagnostics_channel";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

import { ResilError, connect, perHour, telemetry } from "../../sdk-node/lib/index.mjs";

/** Longer than any test: who waits is to be served, or to be killed. */
const PATIENCE = "60s";

/** An error of the worker's own function. */
class OwnError extends Error {}

/** What this process says about itself, as a user would collect it: channels, spans, and counts. */
const require = createRequire(new URL("../../sdk-node/package.json", import.meta.url));
const otel = require("@opentelemetry/api");
const { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } = require("@opentelemetry/sdk-trace");
const { AsyncLocalStorageContextManager } = require("@opentelemetry/context-async-hooks");
otel.context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
const spans = new InMemorySpanExporter();
telemetry.instrument({ tracerProvider: new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter: spans })] }) });
const logs = [];
for (const kind of ["onOpen", "onTransition", "onLost", "onAway", "onBack", "onRefused"]) {
  subscribe(`resil:${kind}`, (said) => logs.push({ level: kind, message: JSON.stringify(said) }));
}

/** Runs within the trace of a request that came with this header. */
function within(traceparent, work) {
  const [, traceId, spanId, flags] = (traceparent ?? "").split("-");
  if (flags === undefined) return work();
  const parent = { traceId, spanId, traceFlags: Number.parseInt(flags, 16) };
  return otel.context.with(otel.trace.setSpanContext(otel.context.active(), parent), work);
}

const client = await connect(process.argv[2]);
const words = new Map();
const kept = new Map();

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

/** Says that `tag` is inside, and waits there for its word. */
async function inside(tag, seen = {}) {
  const word = await new Promise((resolve) => {
    words.set(tag, resolve);
    say({ tag, inside: seen });
  });
  if (word.fail) throw new OwnError("asked to fail");
  return word.value ?? null;
}

const read = (codec, value) => (codec === "bytes" ? Buffer.from(value, "base64") : value);
const shown = (codec, value) => (codec === "bytes" ? Buffer.from(value).toString("base64") : value);

const asks = {
  lock: ({ tag, name, lease_ms: lease = 10_000 }) =>
    client.lock(name, { wait: PATIENCE, lease }).call(({ fence }) => inside(tag, { fence: Number(fence) })),

  bulkhead: ({ tag, name, max, queue = 1_000, priority = 5 }) =>
    client
      .sharedBulkhead(name, { maxConcurrentCalls: max, maxWait: PATIENCE, maxQueue: queue, priority })
      .call(() => inside(tag)),

  breaker: ({ tag, name, consecutive, traceparent }) => {
    const bank = client.breaker(name, { consecutiveFailures: consecutive, openFor: PATIENCE, mode: "exact" });
    // As a service does: it hears of what the others do to it.
    kept.set(name, bank);
    return within(traceparent, () => bank.call(() => inside(tag)));
  },

  said: async () => {
    const shown = ({ name, attributes, parentSpanContext }) => ({ span: name, ...attributes, trace_id: parentSpanContext?.traceId ?? "" });
    const series = ({ metric, labels }) => `${metric}{${Object.entries(labels).map(([label, value]) => `${label}=${value}`).join(",")}}`;
    const counts = telemetry.metrics().filter(({ value }) => typeof value === "number");
    return {
      spans: spans.getFinishedSpans().map(shown),
      logs,
      counts: Object.fromEntries(counts.map((sample) => [series(sample), sample.value])),
    };
  },

  limit: async ({ name, key }) => {
    await client.limiter(name, perHour(1)).acquire(key);
    return null;
  },

  // A load waits for a word, which a test may hold back for longer than a source would take.
  cached: async ({ tag, name, key, codec }) => {
    const users = client.cached(name, { serializer: codec, ttl: "60s", loadTimeout: PATIENCE });
    return shown(codec, await users.get(key, async () => read(codec, await inside(tag))));
  },

  idempotent: async ({ tag, name, key, codec, lease_ms: lease }) => {
    const payments = client.idempotent(name, { serializer: codec, lease, wait: PATIENCE });
    const work = async ({ attempt }) => read(codec, await inside(tag, { attempt }));
    return shown(codec, (await payments.run(key, undefined, work)).value);
  },

  fail_letter: async ({ name, id, payload }) =>
    (await client.deadLetters(name).fail(id, "no paper", { payload: Buffer.from(payload, "base64"), kind: "order" })).verdict,

  take_letter: async ({ name }) => {
    const [letter] = await client.deadLetters(name).take({ wait: PATIENCE });
    const seen = { id: letter.id, payload: letter.payload.toString("base64"), kind: letter.kind, error: letter.error };
    await letter.done();
    return seen;
  },

  follow: async ({ tag, name, until }) => {
    const policy = await client.policy(name, { on: () => true });
    const orders = new Set();
    let [calls, isOver, last] = [0, false, 0n];
    const call = async () => {
      while (!isOver) {
        orders.add(policy.order.join(" "));
        if ((await policy.call(() => "paid")) !== "paid") throw new Error("another value");
        calls += 1;
        await sleep(1);
      }
    };
    const calling = Promise.all(Array.from({ length: 8 }, call));
    while (last < BigInt(until)) {
      while (policy.version <= last) await sleep(1);
      last = policy.version;
      await inside(tag, { version: Number(last) });
    }
    isOver = true;
    await calling;
    return { calls, orders: [...orders].sort() };
  },
};

async function perform(request) {
  const { tag } = request;
  try {
    say({ tag, done: { value: (await asks[request.do](request)) ?? null } });
  } catch (error) {
    if (!(error instanceof OwnError || error instanceof ResilError)) throw error;
    say({ tag, failed: error instanceof OwnError ? "OWN" : error.code });
  }
}

say({ ready: "node" });
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  if ("word" in request) {
    const resolve = words.get(request.tag);
    words.delete(request.tag);
    resolve?.(request.word);
  } else {
    void perform(request);
  }
}
