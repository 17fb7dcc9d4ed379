/** Work that is done once. */
import type { Serializer, Duration } from './common.js';

/** What the request says: text, bytes, or anything that is JSON. The order of keys says nothing. `undefined`: it is not checked. */
export type Fingerprint = string | Uint8Array | undefined | null | boolean | number | object;
export interface IdempotencySettings {
  lease?: Duration;
  /** How long results are kept. */
  keep?: Duration;
  /** How long a duplicate waits for the one that runs. */
  wait?: Duration;
  onLapse?: 'run' | 'hold';
  onLost?: 'cancel' | 'finish';
  abortOnCancel?: boolean;
  replicas?: number;
  whenAway?: 'open' | 'closed';
  /** How results are written. */
  serializer?: Serializer;
  /** Errors that are final (a card that was declined): recorded, and duplicates get them. */
  remember?: {
    isFinal(error: unknown): boolean;
    /** What is recorded of it, as JSON. By default its name, its message, and those of its properties that JSON has. */
    write?(error: any): unknown;
    /** The error of what was recorded. By default an `Error` with that name, message and properties. */
    read?(recorded: any): unknown;
  };
}
export interface Run {
  /** Aborted when the lease is lost, or the caller gave up. */
  readonly signal: AbortSignal;
  /** `undefined` if the server is away and the work runs without it. */
  readonly fence: bigint | undefined;
  /** 1 the first time. Above it, an earlier run fell silent, and may have had its effect. 0: nobody knows. */
  readonly attempt: number;
}
export interface Outcome<T> {
  value: T;
  /** Whether it was done before, and this is what came of it. */
  replayed: boolean;
  attempt: number;
  ageMs: number;
  /** False if the work is done but the server could not record it. */
  recorded: boolean;
}
/** What is known of a key. */
export type RecordedState =
  | { state: 'unknown' }
  | { state: 'running'; attempt: number; remainingMs: number }
  | { state: 'done'; result: Uint8Array | null; isError: boolean; ageMs: number }
  | { state: 'held'; attempt: number };
export class Idempotent {
  private constructor();
  readonly name: string;
  /** Runs `work` unless it was done before; then its result is returned. */
  run<T>(key: string, request: Fingerprint, work: (run: Run) => T, options?: { signal?: AbortSignal }): Promise<Outcome<Awaited<T>>>;
  /** Whether this is the first time that `key` is seen within `ttl`. */
  once(key: string, ttl: Duration, token?: string): Promise<boolean>;
  /** What is known of `key`, changing nothing. */
  get(key: string): Promise<RecordedState>;
}

declare module './client.js' {
  interface Client {
    idempotent(name: string, options?: IdempotencySettings): Idempotent;
  }
}
