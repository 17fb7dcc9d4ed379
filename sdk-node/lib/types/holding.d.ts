/** Locks, shared bulkheads, and what is held of them. */
import type { EventEmitter } from 'node:events';
import type { Duration } from './common.js';
import type { LockLostError } from './errors.js';
import type { Guard } from './guard.js';

export interface LockSettings {
  lease?: Duration;
  /** How long `acquire` waits; 0 is once. */
  wait?: Duration;
  /** As one of many readers. */
  shared?: boolean;
  meta?: string;
  bound?: boolean;
  /** How long a lock can be taken back after its connection was cut, and what a killed process costs the others. */
  grace?: Duration;
  watchdog?: boolean;
  replicas?: number;
  whenAway?: 'open' | 'closed';
  keepRunningWhenLost?: boolean;
}
export interface WaitOptions {
  /** How long to wait, in place of the lock's own. */
  wait?: Duration;
  signal?: AbortSignal;
}
export interface HeldEvents { lost: [error: LockLostError] }
/** What is held. Keep a reference while you need it: an object that is garbage-collected is released. */
export class Held extends EventEmitter<HeldEvents> implements AsyncDisposable {
  protected constructor();
  /** Aborted when it is lost (the reason is a `LockLostError`), and when it was released (a `CancelledError`). */
  readonly signal: AbortSignal;
  readonly isHeld: boolean;
  readonly remainingMs: number;
  readonly owner: string;
  readonly name: string;
  /** Let through without the server, because it was away: nothing protects it. */
  readonly isUnprotected: boolean;
  /** Throws a `LockLostError` if it is not held any more. */
  ensure(): void;
  [Symbol.asyncDispose](): Promise<void>;
}
export class LockGuard extends Held {
  /** Send this number with each write. `null` if the server was away. */
  readonly fence: bigint | null;
  extend(lease: Duration): Promise<void>;
  /** Asks the server whether it is held. */
  check(): Promise<boolean>;
  /** Lets go. A `LockLostError` if it had been lost before. */
  release(): Promise<{ heldMs: number }>;
}
export class BulkheadGuard extends Held {
  leave(): Promise<{ heldMs: number }>;
}
export interface Holder { owner: string; fence: bigint; heldMs: number; remainingMs: number; mode: 'exclusive' | 'shared'; meta: string | null; isBound: boolean }
export interface Waiter { owner: string; mode: 'exclusive' | 'shared' | null; priority: number | null; waitedMs: number }
export interface HoldingInfo { exists: boolean; holders: Holder[]; holdersTotal: number; waiters: Waiter[]; waitersTotal: number; lastFence: bigint }
/**
 * Calls through it run while the lock is held. Their `signal` is aborted when it is lost, and the reply is a `LockLostError`.
 * A call from inside of such a call, by its async context and through the same client, is granted the lock at once.
 */
export interface Lock extends Guard {}
export class Lock {
  private constructor();
  readonly name: string;
  acquire(options?: WaitOptions): Promise<LockGuard>;
  /** Waits for as long as it takes. */
  untilAcquired(options?: { signal?: AbortSignal }): Promise<LockGuard>;
  /** Asks once, and does not wait. */
  tryAcquire(options?: { signal?: AbortSignal }): Promise<LockGuard>;
  info(): Promise<HoldingInfo>;
  /** Takes it from all who hold it. Returns how many did. */
  breakLock(actor?: string, reason?: string): Promise<number>;
  check(owner: string, fence?: number | bigint): Promise<boolean>;
}
export interface SharedBulkheadSettings {
  maxConcurrentCalls: number; maxQueue?: number; maxWait?: Duration; priority?: number; lease?: Duration; bound?: boolean; grace?: Duration; whenAway?: 'open' | 'closed';
}
export interface SharedBulkhead extends Guard {}
export class SharedBulkhead {
  private constructor();
  readonly name: string;
  enter(options?: { wait?: Duration; signal?: AbortSignal }): Promise<BulkheadGuard>;
  tryEnter(options?: { signal?: AbortSignal }): Promise<BulkheadGuard>;
  info(): Promise<HoldingInfo>;
}

declare module './client.js' {
  interface Client {
    lock(name: string, options?: LockSettings): Lock;
    sharedBulkhead(name: string, options: number | SharedBulkheadSettings): SharedBulkhead;
  }
}
