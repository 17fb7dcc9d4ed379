// Server-sent events over fetch. EventSource would give up after a 401 or a 503, hide the comments that tell a quiet
// stream from a dead one, and lose its place when it is made anew; so the stream is read here.
//
// States: connecting → live → reconnecting → live …, and disconnected while attempts keep failing (they go on) or after
// a 401 (they stop). A stream that says nothing for SILENCE_MS, not even a comment, is taken for dead.

export interface ServerEvent {
  id: string | null;
  event: string;
  data: string;
}

/** Bytes to events, as the HTML standard reads them. Feed it text in any pieces. */
export class Parser {
  private rest = "";
  private data: string[] = [];
  private event = "";
  private skipLineFeed = false;
  lastId: string | null = null;
  retryMs: number | null = null;

  feed(text: string): ServerEvent[] {
    const found: ServerEvent[] = [];
    let all = this.rest + text;
    if (this.skipLineFeed && all.startsWith("\n")) all = all.slice(1);
    if (all !== "") this.skipLineFeed = false;
    let from = 0;
    for (let at = 0; at < all.length; at++) {
      const letter = all[at];
      if (letter !== "\n" && letter !== "\r") continue;
      this.line(all.slice(from, at), found);
      if (letter === "\r") {
        if (at + 1 === all.length) this.skipLineFeed = true;
        else if (all[at + 1] === "\n") at++;
      }
      from = at + 1;
    }
    this.rest = all.slice(from);
    return found;
  }

  private line(line: string, found: ServerEvent[]): void {
    if (line === "") {
      if (this.data.length > 0) found.push({ id: this.lastId, event: this.event || "message", data: this.data.join("\n") });
      this.data = [];
      this.event = "";
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.data.push(value);
    else if (field === "event") this.event = value;
    else if (field === "id" && !value.includes("\0")) this.lastId = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.retryMs = Number(value);
  }
}

export type StreamState = "connecting" | "live" | "reconnecting" | "disconnected" | "stopped";

export interface StreamPorts {
  fetch(path: string, options: { headers: Record<string, string>; signal: AbortSignal; cache: "no-store" }): Promise<Response>;
  setTimer(run: () => void, ms: number): number;
  clearTimer(timer: number): void;
  random(): number;
}

export interface StreamListener {
  state(state: StreamState, retryInMs: number | null): void;
  event(event: ServerEvent): void;
  unauthenticated(): void;
}

export const SILENCE_MS = 40_000;
const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 15_000;
/** After so many failures in a row, "reconnecting" is no longer an honest word. */
const DISCONNECTED_AFTER = 4;

export function delayMs(failures: number, random: number): number {
  const most = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** Math.max(0, failures - 1));
  return Math.round(most / 2 + (most / 2) * random);
}

export class EventStream {
  private abort: AbortController | undefined;
  private timer: number | undefined;
  private failures = 0;
  private wasLive = false;
  private lastId: string | null = null;
  private isStopped = false;

  constructor(
    private readonly path: string,
    private readonly ports: StreamPorts,
    private readonly listener: StreamListener,
  ) {}

  start(): void {
    this.isStopped = false;
    this.wasLive = false;
    this.failures = 0;
    void this.connect();
  }

  stop(): void {
    this.isStopped = true;
    this.clear();
    this.abort?.abort();
    this.listener.state("stopped", null);
  }

  /** The network is said to be back, or the page is seen again: do not sit out the delay. */
  hurry(): void {
    if (this.isStopped || this.timer === undefined || this.abort) return;
    this.clear();
    void this.connect();
  }

  private clear(): void {
    if (this.timer !== undefined) this.ports.clearTimer(this.timer);
    this.timer = undefined;
  }

  private async connect(): Promise<void> {
    this.clear();
    const abort = new AbortController();
    this.abort = abort;
    if (!this.wasLive && this.failures === 0) this.listener.state("connecting", null);
    try {
      const headers: Record<string, string> = { Accept: "text/event-stream" };
      if (this.lastId !== null) headers["Last-Event-ID"] = this.lastId;
      this.watch(abort);
      const response = await this.ports.fetch(this.path, { headers, signal: abort.signal, cache: "no-store" });
      if (response.status === 401) {
        this.isStopped = true;
        this.clear();
        this.abort = undefined;
        this.listener.state("disconnected", null);
        this.listener.unauthenticated();
        return;
      }
      if (!response.ok || !response.body) throw new Error(`status ${response.status}`);
      await this.read(response.body, abort);
    } catch {
      // Whatever it was: try again, below.
    }
    if (this.abort === abort) this.abort = undefined;
    abort.abort();
    if (!this.isStopped) this.retry();
  }

  private async read(body: ReadableStream<Uint8Array>, abort: AbortController): Promise<void> {
    const parser = new Parser();
    parser.lastId = this.lastId;
    const decoder = new TextDecoder();
    const reader = body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || abort.signal.aborted) return;
      this.watch(abort);
      if (this.failures > 0 || !this.wasLive) {
        this.failures = 0;
        this.wasLive = true;
        this.listener.state("live", null);
      }
      for (const event of parser.feed(decoder.decode(value, { stream: true }))) {
        this.lastId = event.id;
        this.listener.event(event);
      }
    }
  }

  private watch(abort: AbortController): void {
    this.clear();
    this.timer = this.ports.setTimer(() => {
      this.timer = undefined;
      abort.abort();
    }, SILENCE_MS);
  }

  private retry(): void {
    this.clear();
    this.failures++;
    const ms = delayMs(this.failures, this.ports.random());
    this.listener.state(this.failures >= DISCONNECTED_AFTER ? "disconnected" : "reconnecting", ms);
    this.timer = this.ports.setTimer(() => {
      this.timer = undefined;
      void this.connect();
    }, ms);
  }
}
