/** What a process does by itself, and whole policies. */
import type { BreakerOptions } from './breaker.js';
import type { Away, Clock, Duration } from './common.js';
import type { CallOptions, Context, Guard, On } from './guard.js';
import type { Fingerprint, Idempotent, Outcome, Run } from './idempotent.js';
import type { Limit } from './limiter.js';

/** A limit on extra load. */
export interface BudgetOptions { ttl?: Duration; minPerSecond?: number; percent?: number }

export interface RetryOptions {
  /** Which errors are worth another attempt. Required. */
  on: On;
  name?: string;
  /** Attempts in all, the first included. */
  maxAttempts?: number;
  initialBackoff?: Duration;
  maxBackoff?: Duration;
  backoffMultiplier?: number;
  /** A percentage such as `'20%'`, or `{ plusMinus: 20 }`, is that much up and down. */
  jitter?: 'none' | 'full' | 'equal' | 'decorrelated' | `${number}%` | { plusMinus: number };
  minBackoff?: Duration;
  retryAfterMax?: Duration;
  maxElapsed?: Duration;
  /** `null` for none. */
  budget?: BudgetOptions | null;
  /** For tests. */
  clock?: Clock;
  /** Jitter that repeats itself, for tests. */
  seed?: number;
  /** When all attempts failed, the error of the last one comes out, in place of a `RetryExhaustedError`. */
  reraise?: boolean;
}
export interface Retry extends Guard {}
export class Retry { private constructor(); }
export function retry(options: RetryOptions): Retry;

export interface TimeoutOptions { after: Duration; name?: string; clock?: Clock }
export interface Timeout extends Guard {}
export class Timeout { private constructor(); readonly afterMs: number }
/** The function is aborted, and no longer waited for, when the time is over. */
export function timeout(after: Duration | TimeoutOptions): Timeout;

export interface HedgeOptions {
  /** After which errors the other attempt is awaited. Required. */
  on: On;
  name?: string;
  hedgingDelay?: Duration;
  percentile?: number;
  warmUp?: number;
  maxHedges?: number;
  budget?: BudgetOptions;
  clock?: Clock;
}
export interface Hedge extends Guard {}
export class Hedge { private constructor(); readonly delayMs: number }
/** Starts a second attempt when the first is slow. The first result wins, and the other attempt is aborted. For calls that may be made twice. */
export function hedge(options: HedgeOptions): Hedge;

export interface BulkheadOptions {
  name?: string;
  maxConcurrentCalls: number;
  maxQueue?: number;
  maxWait?: Duration;
  partitions?: Record<string, { maxConcurrentCalls: number; maxQueue?: number }>;
  clock?: Clock;
}
export interface BulkheadMetrics { active: number; queued: number; available: number; completed: number; rejected: number; abandoned: number }
export interface Bulkhead extends Guard {}
export class Bulkhead {
  private constructor();
  readonly name: string;
  readonly metrics: BulkheadMetrics;
  /** Waits for a permit. */
  acquire(options?: { signal?: AbortSignal; partition?: string }): Promise<BulkheadPermit>;
  /** A permit, if there is one now. */
  tryAcquire(): BulkheadPermit;
  partition(name: string): Bulkhead;
}
export class BulkheadPermit implements Disposable, AsyncDisposable {
  private constructor();
  release(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}
/** At most so many calls at once in this process. */
export function bulkhead(options: BulkheadOptions): Bulkhead;

export interface FallbackOptions {
  /** Which failures it replaces. By default all but `INVALID_*`. */
  when?: (error: unknown) => boolean;
}
export interface Fallback<Alt> extends Guard<Alt> {}
export class Fallback<Alt> { private constructor() }
/** Another answer in place of a failure: a function of it, or a value. If the function fails, too, its error gets the failure as `cause`. */
export function fallback<Alt>(instead: (error: unknown, context: Context) => Alt, options?: FallbackOptions): Fallback<Awaited<Alt>>;
export function fallback<const Alt>(instead: Alt, options?: FallbackOptions): Fallback<Alt>;

export type Stage = 'total' | 'shed' | 'retry' | 'hedge' | 'breaker' | 'rate-limit' | 'bulkhead' | 'shared-bulkhead' | 'attempt';
/** All stages as one call, in an order that makes sense. What is left out is not there. */
export interface PolicyOptions {
  /** Which errors of the function may go away, to retry, hedge and breaker. Needed if there is a retry or a hedge. */
  on?: On;
  order?: Stage[];
  timeout?: { attempt?: Duration; total?: Duration };
  shed?: number;
  retry?: Omit<RetryOptions, 'on' | 'name' | 'clock' | 'seed'>;
  hedge?: Omit<HedgeOptions, 'on' | 'name' | 'clock'>;
  breaker?: Omit<BreakerOptions, 'ignore'> & { name?: string };
  rateLimit?: Limit & { name?: string };
  bulkhead?: Omit<BulkheadOptions, 'name' | 'clock'>;
  sharedBulkhead?: { name?: string; maxConcurrentCalls: number; maxQueue?: number; maxWait?: Duration; lease?: Duration; priority?: number; whenAway?: Away };
  whenAway?: Away;
}
export interface Policy extends Guard {}
export class Policy {
  private constructor();
  readonly name: string;
  /** The stages it has, outermost first. */
  readonly order: Stage[];
  /** What is odd about it, in sentences. */
  readonly warnings: string[];
  /** Once for all callers who name the same key: see `Idempotent.run`. All attempts are one run, with one fence. */
  callOnce<T>(
    idempotent: Idempotent, key: string, request: Fingerprint, fn: (run: Run) => T, options?: CallOptions,
  ): Promise<Outcome<Awaited<T>>>;
}
/** Whole policies of a file. */
export class Policies {
  private constructor();
  readonly names: string[];
  /** One of them; `on` says which errors may go away. */
  policy(name: string, options?: { on?: On }): Policy;
}

/** What an item of a batch came to. */
export type ItemResult<T> =
  | { status: 'fulfilled'; value: T }
  | { status: 'rejected'; reason: unknown }
  /** It was running when the batch was stopped. */
  | { status: 'cancelled' }
  /** It never began. */
  | { status: 'not-run' };
export interface DispatcherOptions { workers: number; onError?: 'continue' | 'stop' | 'cancel' }
export class Dispatcher {
  private constructor();
  /**
   * Runs `work` on every item, a few at a time. The results are in the order of the items. If `signal` is aborted it fails with a
   * CancelledError, whose `results` are what was done until then.
   */
  run<T, R>(items: Iterable<T>, work: (item: T, context: Context) => R, options?: { signal?: AbortSignal }): Promise<ItemResult<Awaited<R>>[]>;
}
export function dispatcher(options: number | DispatcherOptions): Dispatcher;

declare module './client.js' {
  interface Client {
    policy(name: string, settings: PolicyOptions): Policy;
    /** Policies by name: settings, the text of a JSON or YAML file, or its path. */
    policies(file: string | URL | { version: 1; defaults?: PolicyOptions; policies: Record<string, PolicyOptions> }): Policies;
  }
}
