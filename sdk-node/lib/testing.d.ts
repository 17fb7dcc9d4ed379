/** For tests: a clock to drive, a script to play, and raw commands. `memory://` is often all that a test needs. */
import type { Client, Clock as AnyClock, ResilError, Duration } from './index.js';

/** The clock of the machine, or one that stands still until you advance it. */
export class Clock implements AnyClock {
  private constructor();
  static driven(): Clock;
  static system(): Clock;
  readonly nowMs: number;
  /** Moves it forward, and wakes all that slept until then. */
  advance(duration: Duration): void;
  /** When the first sleeper wakes. */
  readonly nextWakeMs: number | null;
}
/** A reply: texts, integers (bigints beyond 2^53), lists, null; maps as objects. */
export type Reply = string | number | bigint | null | Reply[] | { [key: string]: Reply };
export type Word = string | Uint8Array | number | bigint;
/**
 * A server with a script: each command that arrives takes the next reply. When the script is over the server is away.
 * Replies are those of the protocol, in the order of the fields of each command's reply.
 */
export class Script {
  constructor(options?: { clock?: Clock });
  /** The next command is answered so. */
  reply(reply: Reply): this;
  /** The next command fails so. */
  fail(error: ResilError): this;
  /** The next command finds nobody there. */
  away(): this;
  /** The connection is lost, as `client.health` shows it and locks see it. Commands still take their lines. */
  goAway(): void;
  /** The connection is there again, as it is at first. */
  comeBack(): void;
  /** A client of this server, as many as one likes. */
  connect(): Client;
  /** The words of every command so far, its name first. */
  readonly asked: string[][];
  /** How many lines have not been said. */
  readonly left: number;
}
/** A command as words, its name first, and what comes back, on whatever the client is connected to. */
export function raw(client: Client, words: readonly Word[]): Promise<Reply>;
/** The same on `memory://`, at an instant of microseconds since the epoch, without waiting. */
export function rawAt(client: Client, words: readonly Word[], atUs: number | bigint): Reply;
