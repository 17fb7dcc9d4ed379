/**
 * Resil for Node: limits, breakers, locks, idempotency and cached loads that a whole fleet shares, and the policies around
 * them. Everything runs on `memory://` without any set-up, and with the same verdicts on a server.
 *
 * Spans are numbers of milliseconds, or text such as `"250ms"` (units: us, ms, s, m, h, d).
 * What comes back is in milliseconds, and says so in its name. Counters that may pass 2^53 are bigints.
 */

import type { EventEmitter } from 'node:events';

/** Milliseconds, or text such as `"250ms"`, `"10s"`, `"1h"`. */
export type Span = number | string;

/** What happens to a call while the server cannot be reached: it is let through, refused, or decided in this process. */
export type Away = 'open' | 'closed' | 'local';

// ---------------------------------------------------------------------------------------------- errors

/** The stable names of errors, the same in every language. */
export type Code =
  | 'CIRCUIT_OPEN' | 'RATE_LIMIT_EXCEEDED' | 'TIMEOUT' | 'BULKHEAD_FULL' | 'RETRY_EXHAUSTED' | 'INVALID_POLICY'
  | 'INVALID_ARGUMENT' | 'LOCK_TIMEOUT' | 'LOCK_LOST' | 'DEADLOCK' | 'IDEMPOTENCY_BUSY' | 'IDEMPOTENCY_MISMATCH'
  | 'IDEMPOTENCY_HELD' | 'LOAD_FAILED' | 'BACKEND_UNAVAILABLE' | 'MODULE_MISSING' | 'PERMISSION_DENIED' | 'CANCELLED'
  | 'SHUTTING_DOWN' | 'PANICKED' | 'INTERNAL';

/** What Resil itself has to say. What your own functions throw comes through untouched. */
export class ResilError extends Error {
  readonly code: Code;
  /** Whether the same call may succeed if it is made again, later. */
  readonly retryable: boolean;
  /** How long to wait before, if that is known. */
  readonly retryAfterMs: number | undefined;
  /** The status to answer with over HTTP. */
  readonly httpStatus: number;
  /** The name of the limit, breaker, lock or key it is about, if it is about one. */
  readonly resource: string | undefined;
}
export class CircuitOpenError extends ResilError { readonly code: 'CIRCUIT_OPEN' }
export class RateLimitExceededError extends ResilError { readonly code: 'RATE_LIMIT_EXCEEDED' }
export class TimeoutError extends ResilError { readonly code: 'TIMEOUT' }
export class BulkheadFullError extends ResilError { readonly code: 'BULKHEAD_FULL' }
/** Every attempt failed; `cause` is how the last one did. */
export class RetryExhaustedError extends ResilError { readonly code: 'RETRY_EXHAUSTED'; readonly attempts: number; readonly cause: unknown }
/** A setting cannot be used; `field` says which. Also a `RangeError`. */
export class InvalidPolicyError extends ResilError implements RangeError { readonly code: 'INVALID_POLICY'; readonly field: string }
/** An argument cannot be used. Also a `TypeError`. */
export class InvalidArgumentError extends ResilError implements TypeError { readonly code: 'INVALID_ARGUMENT' }
export class LockTimeoutError extends ResilError { readonly code: 'LOCK_TIMEOUT' }
export class LockLostError extends ResilError { readonly code: 'LOCK_LOST' }
export class DeadlockError extends ResilError { readonly code: 'DEADLOCK' }
export class IdempotencyBusyError extends ResilError { readonly code: 'IDEMPOTENCY_BUSY' }
export class IdempotencyMismatchError extends ResilError { readonly code: 'IDEMPOTENCY_MISMATCH' }
export class IdempotencyHeldError extends ResilError { readonly code: 'IDEMPOTENCY_HELD' }
export class LoadFailedError extends ResilError { readonly code: 'LOAD_FAILED' }
export class BackendUnavailableError extends ResilError { readonly code: 'BACKEND_UNAVAILABLE' }
export class ModuleMissingError extends ResilError { readonly code: 'MODULE_MISSING' }
export class PermissionDeniedError extends ResilError { readonly code: 'PERMISSION_DENIED' }
/** The caller gave up: its signal was aborted, and `cause` is the reason. Or another attempt was faster. */
export class CancelledError extends ResilError { readonly code: 'CANCELLED'; /** Of a batch: what was done until then. */ readonly results?: ItemResult<unknown>[] }
export class ShuttingDownError extends ResilError { readonly code: 'SHUTTING_DOWN' }
export class PanickedError extends ResilError { readonly code: 'PANICKED' }
export class InternalError extends ResilError { readonly code: 'INTERNAL' }

// ------------------------------------------------------------------------------------------ HTTP

/** An error as a whole answer, `application/problem+json`. One that is none of ours is a 500 without its words. */
export function problem(error: unknown): { status: number; headers: Record<string, string>; body: string };
/** `RateLimit-Policy`, `RateLimit`, `X-RateLimit-*`, and `Retry-After` of a refusal. */
export function rateLimitHeaders(
  policy: string, verdict: Verdict, options?: { limit?: number; windowMs?: number; reset?: 'after' | 'at' },
): Record<string, string>;
/** The key of the header `Idempotency-Key`, or an `InvalidArgumentError`; `undefined` if it is not there and need not be. */
export function idempotencyKey(header: string | null | undefined, options?: { required?: boolean }): string | undefined;
/** What makes a request this request. */
export function requestFingerprint(method: string, path: string, body?: string | Uint8Array): string;

// ------------------------------------------------------------------------------------------ functions through policies

/** What a function is told when it is called through a policy. */
export interface Context {
  /** Aborted when nobody waits for this attempt any more: it timed out, another was faster, the caller gave up. */
  readonly signal: AbortSignal;
  /** 1 the first time. */
  readonly attempt: number;
  /** Of a lock around it: the number to send along with each write. */
  readonly fence: bigint | undefined;
}

/** What is particular to one call. */
export interface CallOptions {
  /** Aborted, the call is given up: what is running is aborted, what is held is given back, and it is a `CancelledError`. */
  signal?: AbortSignal | undefined;
  /** Whose rate limit: a user, a tenant. The name of the limiter or policy unless said. */
  key?: string | undefined;
  /** How many cells of the rate limit. One unless said. */
  cost?: number | undefined;
  /** Which partition of a local bulkhead. */
  partition?: string | undefined;
  /** In place of the policy's. Whole policies only. */
  attemptTimeout?: Span | undefined;
  totalTimeout?: Span | undefined;
}

/** Not there at run time: by which the compiler knows what a guard may answer in place of a failure. */
declare const ALT: unique symbol;

/** Whatever a function can be called through. `Alt` is what it may answer in place of a failure. */
export interface Guard<Alt = never> {
  readonly [ALT]?: () => Alt;
  /** Calls `fn` through it. */
  call<T>(fn: (context: Context) => T, options?: CallOptions): Promise<Awaited<T> | Alt>;
  /** A function like `fn`, every call of which goes through it. Arguments, `this` and the result keep their types. */
  wrap<This, Args extends unknown[], R>(
    fn: (this: This, ...args: Args) => R, options?: CallOptions,
  ): (this: This, ...args: Args) => Promise<Awaited<R> | Alt>;
  /** The same, and `fn` is told the context as one more argument, the last. */
  wrap<This, Args extends unknown[], R>(
    fn: (this: This, ...argsAndContext: [...Args, Context]) => R, options: CallOptions & { context: true },
  ): (this: This, ...args: Args) => Promise<Awaited<R> | Alt>;
}

/** What a guard may answer in place of a failure. */
export type AltOf<G> = G extends { readonly [ALT]?: () => infer Alt } ? Alt : never;

/** Guards around each other, outermost first. With a function last: that function, through them. */
export function wrap<G extends readonly [Guard<any>, ...Guard<any>[]]>(...guards: G): Guard<AltOf<G[number]>>;
export function wrap<This, Args extends unknown[], R, G extends readonly [Guard<any>, ...Guard<any>[]]>(
  ...guardsAndFunction: [...G, (this: This, ...args: Args) => R]
): (this: This, ...args: Args) => Promise<Awaited<R> | AltOf<G[number]>>;

/**
 * What an error means: `true` it may go away, a number it may go away after so many milliseconds, `false` it will not,
 * `'ignore'` it says nothing about the health of what was called (not found, a bad request).
 */
export type Meaning = boolean | number | 'ignore';
/** Which errors are worth another attempt: a function, one class, or several. Resil's own are judged by Resil. */
export type On = ((error: unknown) => Meaning) | ErrorClass | readonly ErrorClass[];
export type ErrorClass = abstract new (...args: any[]) => unknown;
/** Every error may go away. Only for calls that may be made twice. */
export const handleAll: (error: unknown) => true;
/** None does; what Resil itself says is still judged as usual. */
export const handleNone: (error: unknown) => false;

// ------------------------------------------------------------------------------------------ what a process does by itself

/** A limit on extra load. */
export interface BudgetOptions { ttl?: Span; minPerSecond?: number; percent?: number }

export interface RetryOptions {
  /** Which errors are worth another attempt. Has to be said. */
  on: On;
  name?: string;
  /** Attempts in all, the first included. */
  maxAttempts?: number;
  initialBackoff?: Span;
  maxBackoff?: Span;
  backoffMultiplier?: number;
  /** A percentage such as `'20%'` is that much up and down. */
  jitter?: 'none' | 'full' | 'equal' | 'decorrelated' | `${number}%`;
  minBackoff?: Span;
  retryAfterMax?: Span;
  maxElapsed?: Span;
  /** `null` for none. */
  budget?: BudgetOptions | null;
  /** For tests. */
  clock?: Clock;
  /** Jitter that repeats itself, for tests. */
  seed?: number;
}
export interface Retry extends Guard {}
export class Retry { private constructor(); }
export function retry(options: RetryOptions): Retry;

export interface TimeoutOptions { after: Span; name?: string; clock?: Clock }
export interface Timeout extends Guard {}
export class Timeout { private constructor(); readonly afterMs: number }
/** The function is aborted, and no longer waited for, when the time is over. */
export function timeout(after: Span | TimeoutOptions): Timeout;

export interface HedgeOptions {
  /** Which errors are worth waiting for the other attempt. Has to be said. */
  on: On;
  name?: string;
  hedgingDelay?: Span;
  percentile?: number;
  warmUp?: number;
  maxHedges?: number;
  budget?: BudgetOptions;
  clock?: Clock;
}
export interface Hedge extends Guard {}
export class Hedge { private constructor(); readonly delayMs: number }
/** A second attempt when the first is slow; whoever is first wins, the other is aborted. For calls that may be made twice. */
export function hedge(options: HedgeOptions): Hedge;

export interface BulkheadOptions {
  name?: string;
  maxConcurrentCalls: number;
  maxQueue?: number;
  maxWait?: Span;
  partitions?: Record<string, { maxConcurrentCalls: number; maxQueue?: number }>;
  clock?: Clock;
}
export interface BulkheadMetrics { active: number; queued: number; available: number; completed: number; rejected: number; abandoned: number }
export interface Bulkhead extends Guard {}
export class Bulkhead {
  private constructor();
  readonly name: string;
  readonly metrics: BulkheadMetrics;
  /** A place to hold while something else is done. */
  acquire(options?: { signal?: AbortSignal; partition?: string }): Promise<BulkheadPermit>;
  /** A place if there is one now. */
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
  /** To which failures it applies. To all but `INVALID_*` unless said. */
  when?: (error: unknown) => boolean;
}
export interface Fallback<Alt> extends Guard<Alt> {}
export class Fallback<Alt> { private constructor() }
/** Another answer in place of a failure: a function of it, or a value. */
export function fallback<Alt>(instead: (error: unknown, context: Context) => Alt, options?: FallbackOptions): Fallback<Awaited<Alt>>;
export function fallback<const Alt>(instead: Alt, options?: FallbackOptions): Fallback<Alt>;

export type Stage = 'total' | 'shed' | 'retry' | 'hedge' | 'breaker' | 'rateLimit' | 'bulkhead' | 'sharedBulkhead' | 'attempt';
/** All stages as one call, in an order that makes sense. What is left out is not there. */
export interface PolicyOptions {
  /** Which errors of the function may go away, to retry, hedge and breaker. Needed if there is a retry or a hedge. */
  on?: On;
  order?: Stage[];
  timeout?: { attempt?: Span; total?: Span };
  shed?: number;
  retry?: Omit<RetryOptions, 'on' | 'name' | 'clock' | 'seed'>;
  hedge?: Omit<HedgeOptions, 'on' | 'name' | 'clock'>;
  breaker?: Omit<BreakerOptions, 'ignore'> & { name?: string };
  rateLimit?: Limit & { name?: string };
  bulkhead?: Omit<BulkheadOptions, 'name' | 'clock'>;
  sharedBulkhead?: { name?: string; maxConcurrentCalls: number; maxQueue?: number; maxWait?: Span; lease?: Span; priority?: number; whenAway?: Away };
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
  | { status: 'notRun' };
export interface DispatcherOptions { workers: number; onError?: 'goOn' | 'beginNoMore' | 'cancelOthers' }
export class Dispatcher {
  private constructor();
  /**
   * Runs `work` on every item, a few at a time. The results are in the order of the items. If `signal` is aborted it fails with a
   * CancelledError, whose `results` are what was done until then.
   */
  run<T, R>(items: Iterable<T>, work: (item: T, context: Context) => R, options?: { signal?: AbortSignal }): Promise<ItemResult<Awaited<R>>[]>;
}
export function dispatcher(options: number | DispatcherOptions): Dispatcher;

// ------------------------------------------------------------------------------------------ connecting

export interface ConnectOptions {
  /** Who this process is to the others. Random unless said. */
  name?: string;
  /** How long a command may take before the server counts as not answering. */
  commandTimeout?: Span;
  /** How many processes share the limits, for while the server is away. */
  instances?: number;
  /** How many connections may wait for locks and loads at once. */
  waitingConnections?: number;
  /** For tests. */
  clock?: Clock;
  signal?: AbortSignal;
}
/**
 * `memory://`, `redis://`, `rediss://`, `redis+cluster://`, `redis+sentinel://`, `unix://`. A server that is away is no error; a
 * wrong URL, password or certificate, and a server without the module, are.
 */
export function connect(url: string, options?: ConnectOptions): Promise<Client>;

export type Status = 'healthy' | 'degraded' | 'unhealthy';
export interface Health { overall: Status; policies: Record<string, Status> }
export interface ShutdownReport {
  drained: number; cutOff: number; released: string[]; unreleased: { name: string; reason: string }[]; stragglers: number; isClean: boolean;
}

export class Client implements AsyncDisposable {
  private constructor();
  limiter(name: string, limit: Limit): Limiter;
  breaker(name: string, options?: BreakerOptions): Breaker;
  lock(name: string, options?: LockOptions): Lock;
  sharedBulkhead(name: string, options: number | SharedBulkheadOptions): SharedBulkhead;
  idempotent(name: string, options?: IdempotentOptions): Idempotent;
  cached(name: string, options: CachedOptions & { codec: 'bytes' }): Cached<Uint8Array>;
  cached<T = unknown>(name: string, options?: CachedOptions): Cached<T>;
  /** Values that carry versions, so that a source that lags behind replaces nothing newer. */
  versioned<T = unknown>(name: string, options?: CachedOptions): VersionedCached<T>;
  policy(name: string, settings: PolicyOptions): Policy;
  /** Policies by name: settings, the text of a JSON or YAML file, or its path. */
  policies(file: string | URL | { version: 1; defaults?: PolicyOptions; policies: Record<string, PolicyOptions> }): Policies;
  /** Takes `cost` cells from every limit, or from none. */
  checkAll(limits: Iterable<readonly [Limiter, string]>, cost?: number, options?: { signal?: AbortSignal }): Promise<Verdicts>;
  health(): Health;
  readonly isShuttingDown: boolean;
  /** Takes no new calls, waits at most so long for those in flight, gives back what is held, closes the connections. */
  shutdown(deadline?: Span): Promise<ShutdownReport>;
  [Symbol.asyncDispose](): Promise<void>;
}

// ------------------------------------------------------------------------------------------ rate limits

export interface Tier { limit: number; period: Span; burst?: number }
export interface Limit extends Tier {
  /** `window`: never more than the limit in any period. */
  kind?: 'bucket' | 'window';
  /** Further limits that must all agree, each with a period of its own. */
  tiers?: Tier[];
  whenAway?: Away;
}
export function perSecond(limit: number, more?: Omit<Limit, 'limit' | 'period'>): Limit;
export function perMinute(limit: number, more?: Omit<Limit, 'limit' | 'period'>): Limit;
export function perHour(limit: number, more?: Omit<Limit, 'limit' | 'period'>): Limit;
export function perDay(limit: number, more?: Omit<Limit, 'limit' | 'period'>): Limit;

export interface Verdict {
  /** Cells that were taken (by a refund: given back; by a peek: there to be taken). */
  granted: number;
  isGranted: boolean;
  capacity: number;
  remaining: number;
  /** 0 if nothing was refused; `null`: never, it costs more than the limit holds. */
  retryAfterMs: number | null;
  resetAfterMs: number;
  decidedBy: 'server' | 'denyCache' | 'local' | 'awayOpen';
}
export interface Verdicts {
  granted: number; isGranted: boolean;
  /** Which of them refused first, counted from 0. */
  refusedBy: number | null;
  /** The one that speaks for all. */
  binding: Verdict;
  each: Verdict[];
}
export interface CheckOptions { signal?: AbortSignal }
export interface Limiter extends Guard {}
export class Limiter {
  private constructor();
  readonly name: string;
  /** Takes `cost` cells (one unless said), or none. A refusal is a verdict, not an error. */
  check(key: string, cost?: number, options?: CheckOptions): Promise<Verdict>;
  /** The same, or fails with a `RateLimitExceededError`. */
  acquire(key: string, cost?: number, options?: CheckOptions): Promise<void>;
  /** As many as there are, up to `most`. */
  upTo(key: string, most: number, options?: CheckOptions): Promise<Verdict>;
  peek(key: string, options?: CheckOptions): Promise<Verdict>;
  refund(key: string, cells: number, options?: CheckOptions): Promise<Verdict>;
}

// ------------------------------------------------------------------------------------------ breakers

export interface BreakerOptions {
  windowCalls?: number;
  windowTime?: Span;
  /** In percent; 0 is off. */
  failureRate?: number;
  /** Goes with `slowCallRate`. */
  slowCallDuration?: Span;
  slowCallRate?: number;
  /** 0 is off. */
  consecutiveFailures?: number;
  minCalls?: number;
  openFor?: Span;
  /** Goes with `openMax`. */
  openFactor?: number;
  openMax?: Span;
  probes?: number;
  successes?: number;
  probeLease?: Span;
  quorum?: number;
  ramp?: Span;
  idle?: Span;
  version?: number | bigint;
  mode?: 'batched' | 'exact';
  whenAway?: Away;
  flushInterval?: Span;
  batch?: number;
  trust?: Span;
  /** Errors that say nothing about the health of what was called. */
  ignore?: ((error: unknown) => boolean) | ErrorClass | readonly ErrorClass[];
}
export type BreakerState = 'closed' | 'open' | 'half-open' | 'ramping' | 'forced-open' | 'forced-closed' | 'disabled' | 'metrics';
export interface Transition { previous: BreakerState; new: BreakerState; generation: bigint }
export interface BreakerSnapshot {
  state: BreakerState; admits: boolean; retryAfterMs: number | null; generation: bigint;
  calls: number; failures: number; slow: number; failureRatePercent: number; slowRatePercent: number; failuresInARow: number;
  trips: number; probesOut: number; successes: number; openedAt: Date | null;
  forced: { by: string; reason: string; since: Date; until: Date | null } | null;
  version: bigint; config: Record<string, string>;
}
export interface BreakerEvents { transition: [transition: Transition] }
export interface Breaker extends Guard {}
export class Breaker extends EventEmitter<BreakerEvents> {
  private constructor();
  readonly name: string;
  /** Where it stood when this process last heard of it; `null` before the first call. */
  readonly lastKnownState: BreakerState | null;
  /** The two steps by hand: may a call be made? */
  admit(options?: { signal?: AbortSignal }): Promise<Permit>;
  state(): Promise<BreakerSnapshot>;
  force(state: 'open' | 'closed' | 'disabled' | 'metrics' | 'auto', options?: { for?: Span; reason?: string }): Promise<BreakerState>;
  reset(): Promise<boolean>;
  configure(options: Omit<BreakerOptions, 'ignore'>): Promise<boolean>;
}
/** Leave to make one call. Disposed of without a word, it was cancelled. */
export class Permit implements AsyncDisposable {
  private constructor();
  success(): Promise<void>;
  failure(): Promise<void>;
  ignore(): Promise<void>;
  cancel(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

// ------------------------------------------------------------------------------------------ locks and shared bulkheads

export interface LockOptions {
  lease?: Span;
  /** How long `acquire` waits; 0 is once. */
  wait?: Span;
  /** As one of many readers. */
  shared?: boolean;
  meta?: string;
  bound?: boolean;
  watchdog?: boolean;
  replicas?: number;
  whenAway?: 'open' | 'closed';
  keepRunningWhenLost?: boolean;
}
export interface WaitOptions {
  /** How long to wait, in place of the lock's own. `'forever'`: until it is had. */
  wait?: Span | 'forever';
  signal?: AbortSignal;
}
export interface HoldingEvents { lost: [error: LockLostError] }
/** What is held. Keep it while it is needed: one that nobody has any more is given back when it is collected. */
export class Holding extends EventEmitter<HoldingEvents> implements AsyncDisposable {
  protected constructor();
  /** Aborted when it is lost; the reason is a `LockLostError`. */
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
export class LockGuard extends Holding {
  /** The number to send along with each write. `null` if the server was away. */
  readonly fence: bigint | null;
  extend(lease: Span): Promise<void>;
  /** Asks the server whether it is held. */
  check(): Promise<boolean>;
  /** Lets go. A `LockLostError` if it had been lost before. */
  release(): Promise<{ heldMs: number }>;
}
export class BulkheadGuard extends Holding {
  leave(): Promise<{ heldMs: number }>;
}
export interface Holder { owner: string; fence: bigint; heldMs: number; remainingMs: number; mode: 'exclusive' | 'shared'; meta: string | null; isBound: boolean }
export interface Waiter { owner: string; mode: 'exclusive' | 'shared' | null; priority: number | null; waitedMs: number }
export interface HoldingInfo { holders: Holder[]; holdersTotal: number; waiters: Waiter[]; waitersTotal: number; lastFence: bigint }
/**
 * Calls through it run while the lock is held. Their `signal` is aborted when it is lost, and the answer is a `LockLostError`.
 * Whoever asks for it again from inside of such a call, by its async context and the same client, is granted it at once.
 */
export interface Lock extends Guard {}
export class Lock {
  private constructor();
  readonly name: string;
  acquire(options?: WaitOptions): Promise<LockGuard>;
  /** Asks once, and does not wait. */
  tryAcquire(options?: { signal?: AbortSignal }): Promise<LockGuard>;
  info(): Promise<HoldingInfo>;
  /** Takes it from whoever holds it. How many did. */
  break(actor?: string, reason?: string): Promise<number>;
  check(owner: string, fence?: number | bigint): Promise<boolean>;
}
export interface SharedBulkheadOptions {
  max: number; queue?: number; wait?: Span; priority?: number; lease?: Span; bound?: boolean; whenAway?: 'open' | 'closed';
}
export interface SharedBulkhead extends Guard {}
export class SharedBulkhead {
  private constructor();
  readonly name: string;
  enter(options?: { wait?: Span; signal?: AbortSignal }): Promise<BulkheadGuard>;
  tryEnter(options?: { signal?: AbortSignal }): Promise<BulkheadGuard>;
  info(): Promise<HoldingInfo>;
}

// ------------------------------------------------------------------------------------------ idempotency

/** What the request says: text, bytes, or anything that is JSON. `undefined`: it is not checked. */
export type Fingerprint = string | Uint8Array | undefined | null | boolean | number | object;
export interface IdempotentOptions {
  lease?: Span;
  /** How long results are kept. */
  keep?: Span;
  /** How long a duplicate waits for the one that runs. */
  wait?: Span;
  onLapse?: 'run' | 'hold';
  onLost?: 'cancel' | 'finish';
  abortOnCancel?: boolean;
  replicas?: number;
  whenAway?: 'open' | 'closed';
  /** How results are kept: as JSON unless said. */
  codec?: 'json' | 'bytes';
  /** Errors that are final (a card that was declined): recorded, and duplicates get them. */
  remember?: {
    isFinal(error: unknown): boolean;
    /** What is recorded of it, as JSON. `{name, message}` unless said. */
    write?(error: any): unknown;
    /** The error of what was recorded. */
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
  /** `undefined` only for a duplicate of work whose result could not be kept. */
  value: T | undefined;
  /** Whether it was done before, and this is what came of it. */
  replayed: boolean;
  attempt: number;
  ageMs: number;
  /** False if the work is done but the server could not be told. */
  recorded: boolean;
}
export type Known =
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
  once(key: string, ttl: Span, token?: string): Promise<boolean>;
  /** What is known of `key`, changing nothing. */
  get(key: string): Promise<Known>;
}

// ------------------------------------------------------------------------------------------ cached loads

export interface CachedOptions {
  ttl?: Span; negativeTtl?: Span; stale?: Span; errorTtl?: Span; retry?: Span; onError?: 'share' | 'passOn';
  loadTimeout?: Span; lease?: Span; localTtl?: Span; localSize?: number; whenAway?: Away;
  /** How values are kept: as JSON unless said. */
  codec?: 'json' | 'bytes';
}
export type Loaded<T> =
  | { found: true; value: T; ageMs: number | null; stale: boolean }
  | { found: false };
/** `null` and `undefined`: there is no such thing. */
export type Loader<T> = (key: string, context: { readonly signal: AbortSignal }) => T | null | undefined | PromiseLike<T | null | undefined>;
export class Cached<T> {
  private constructor();
  readonly name: string;
  /** The known value, or what `loader` brings; `undefined`: there is no such thing. */
  get<V extends T = T>(key: string, loader: Loader<V>, options?: { signal?: AbortSignal }): Promise<V | undefined>;
  /** The same, with how old it is. */
  load<V extends T = T>(key: string, loader: Loader<V>, options?: { signal?: AbortSignal }): Promise<Loaded<V>>;
  /** What was loaded before is not returned to a get that begins after it. */
  invalidate(key: string): Promise<boolean>;
  /** The same, but it is served as stale for as long as that is allowed. */
  invalidateSoft(key: string): Promise<boolean>;
}
export interface Versioned<T> { version: number | bigint; value: T }
export class VersionedCached<T> {
  private constructor();
  readonly name: string;
  get<V extends T = T>(key: string, loader: Loader<Versioned<V>>, options?: { signal?: AbortSignal; atLeast?: number | bigint }): Promise<{ version: bigint; value: V } | undefined>;
  invalidate(key: string): Promise<boolean>;
  invalidateSoft(key: string): Promise<boolean>;
}

// ------------------------------------------------------------------------------------------ for tests

/** See `resil/testing`. */
export interface Clock { readonly nowMs: number; advance(span: Span): void; readonly nextWakeMs: number | null }
