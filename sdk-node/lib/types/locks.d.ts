/** Several locks at once: all of them, or none. */
import type { LockSettings, WaitOptions } from './holding.js';

/** Several locks that are held. Keep a reference while you need it: an object that is garbage-collected is released. */
export class LocksGuard implements AsyncDisposable {
  private constructor();
  /** One for each lock, in the order of their keys. Send them with each write. */
  readonly fences: (bigint | null)[];
  /** All of them, now. */
  readonly isHeld: boolean;
  /** Throws a `LockLostError` if one of them is not held any more. */
  ensure(): void;
  /** Releases them in reverse. A `LockLostError` if one had been lost before. */
  release(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
/** Several locks, in the order of their keys. It holds nothing. */
export class Locks {
  private constructor();
  readonly names: string[];
  /** Waits for all of them together. */
  acquire(options?: WaitOptions): Promise<LocksGuard>;
  /** Asks once for each, and does not wait. */
  tryAcquire(options?: { signal?: AbortSignal }): Promise<LocksGuard>;
}

declare module './client.js' {
  interface Client {
    locks(names: string[], options?: LockSettings): Locks;
    /** `lock:<domain>:<resource>:<id>` */
    lockName(domain: string, resource: string, id: string): string;
  }
}
