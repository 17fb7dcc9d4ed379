/** For tests: a clock to drive, and raw commands. `memory://` is often all that a test needs. */
import type { Client, Clock as AnyClock, Span } from './index.js';

/** The machine's clock, or one that stands still until it is told to go on. */
export class Clock implements AnyClock {
  private constructor();
  static driven(): Clock;
  static system(): Clock;
  readonly nowMs: number;
  /** Drives it on; whoever slept until then wakes. */
  advance(span: Span): void;
  /** When the first sleeper wakes. */
  readonly nextWakeMs: number | null;
}
/** A reply: texts, integers (bigints beyond 2^53), lists, null; maps as objects. */
export type Reply = string | number | bigint | null | Reply[] | { [key: string]: Reply };
export type Word = string | Uint8Array | number | bigint;
/** A command as words, its name first, and what comes back, on whatever the client is connected to. */
export function raw(client: Client, words: readonly Word[]): Promise<Reply>;
/** The same on `memory://`, at an instant of microseconds since the epoch, without waiting. */
export function rawAt(client: Client, words: readonly Word[], atUs: number | bigint): Reply;
