/** What a process does by itself, and whole policies. */
import type { BreakerSettings } from './breaker.js';
import type { Away, Clock, Duration } from './common.js';
import type { CallSettings, Context, ErrorClass, Guard, On, OnResult } from './guard.js';
import type { Fingerprint, Idempotent, Outcome, Run } from './idempotent.js';
import type { Limit } from './limiter.js';

/** A limit on extra load. */
export interface BudgetSettings { ttl?: Duration; minPerSecond?: number; percent?: number }
/** A limit on extra load that several policies share: so many retries and hedges for the calls that they all make. */
export class Budget {
  private constructor();
  /** How many extra calls would be granted now. */
  readonly available: number;
}
export function budget(options?: BudgetSettings & { clock?: Clock }): Budget;

export interface RetrySettings {
  /** Which errors are worth another attempt. Required, unless there is `onResult`. */
  on?: On;
  /** Which results are failures, too. When there is no other attempt, the result is returned as it came. */
  onResult?: OnResult;
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
  budget?: BudgetSettings | Budget | null;
  /** For tests. */
  clock?: Clock;
  /** Jitter that repeats itself, for tests. */
  seed?: number;
  /** When all attempts failed, the error of the last one comes out, in place of a `RetryExhaustedError`. */
  reraise?: boolean;
}
export interface Retry extends Guard {}
export class Retry { private constructor(); }
export function retry(options: RetrySettings & ({ on: On } | { onResult: OnResult })): Retry;

export interface TimeoutOptions { after: Duration; name?: string; clock?: Clock }
export interface Timeout extends Guard {}
export class Timeout { private constructor(); readonly afterMs: number }
/** The function is aborted, and no longer waited for, when the time is over. */
export function timeout(after: Duration | TimeoutOptions): Timeout;

export interface HedgeSettings {
  /** After which errors the other attempt is awaited. Required. */
  on: On;
  name?: string;
  hedgingDelay?: Duration;
  percentile?: number;
  warmUp?: number;
  maxHedges?: number;
  budget?: BudgetSettings | Budget;
  clock?: Clock;
}
export interface Hedge extends Guard {}
export class Hedge { private constructor(); readonly delayMs: number }
/** Starts a second attempt when the first is slow. The first result wins, and the other attempt is aborted. For calls that may be made twice. */
export function hedge(options: HedgeSettings): Hedge;

export interface BulkheadSettings {
  name?: string;
  /** 25 by default. */
  maxConcurrentCalls?: number;
  maxQueue?: number;
  maxWait?: Duration;
  partitions?: Record<string, { maxConcurrentCalls: number; maxQueue?: number }>;
  adaptive?: { kind: 'gradient' | 'aimd'; min?: number };
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
export function bulkhead(options?: BulkheadSettings): Bulkhead;

export interface FallbackSettings {
  /** Which failures it replaces: a function, one class, or several. By default all but `INVALID_*`. */
  when?: ((error: unknown) => boolean) | ErrorClass | readonly ErrorClass[];
}
export interface Fallback<Alt> extends Guard<Alt> {}
export class Fallback<Alt> { private constructor() }
/** Another result in place of a failure: a function of it, or a value. If the function fails, too, its error gets the failure as `cause`. */
export function fallback<Alt>(instead: (error: unknown, context: Context) => Alt, options?: FallbackSettings): Fallback<Awaited<Alt>>;
export function fallback<const Alt>(instead: Alt, options?: FallbackSettings): Fallback<Alt>;

export type Stage = 'total' | 'shed' | 'retry' | 'hedge' | 'breaker' | 'rate-limit' | 'bulkhead' | 'shared-bulkhead' | 'attempt';
/** All stages as one call, in an order that makes sense. What is left out is not there. */
export interface PolicySettings {
  /** Which errors of the function may go away, to retry, hedge and breaker. Needed if there is a retry or a hedge. */
  on?: On;
  /** Which results are failures, too, to retry and breaker. When there is no other attempt, the result is returned as it came. */
  onResult?: OnResult;
  order?: Stage[];
  timeout?: { attempt?: Duration; total?: Duration };
  shed?: number;
  retry?: Omit<RetrySettings, 'on' | 'onResult' | 'name' | 'clock' | 'seed'>;
  hedge?: Omit<HedgeSettings, 'on' | 'name' | 'clock' | 'budget'> & { budget?: BudgetSettings };
  breaker?: Omit<BreakerSettings, 'ignore'> & { name?: string };
  rateLimit?: Limit & { name?: string };
  bulkhead?: Omit<BulkheadSettings, 'name' | 'clock'>;
  sharedBulkhead?: { name?: string; maxConcurrentCalls: number; maxQueue?: number; maxWait?: Duration; lease?: Duration; priority?: number; adaptive?: { kind: 'gradient' | 'aimd'; min?: number }; whenAway?: Away };
  throttle?: { k?: number; window?: Duration };
  shedding?: { background?: number; low?: number; normal?: number; high?: number; hysteresis?: number };
  chaos?: { kind: 'latency' | 'error' | 'drop'; percent: number; latency?: Duration; subjects?: string[]; until: string; seed?: number };
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
  /** The version in use of a stored policy that is followed. */
  readonly version: bigint | undefined;
  /** Why what is in use is not what is stored, or in the file, if it is not. */
  readonly problem: string | undefined;
  /** Once for all callers who name the same key: see `Idempotent.run`. All attempts are one run, with one fence. Not with `onResult`: every result is recorded. */
  callOnce<T>(
    idempotent: Idempotent, key: string, request: Fingerprint, fn: (run: Run) => T, options?: CallSettings,
  ): Promise<Outcome<Awaited<T>>>;
}
/** Whole policies of a file. */
export class Policies {
  private constructor();
  readonly names: string[];
  /** One of them; `on` says which errors may go away. */
  policy(name: string, options?: { on?: On; onResult?: OnResult }): Policy;
}

/** Only `on` and `onResult`: no settings. */
type Followed = ({ on: On } | { onResult: OnResult }) & { on?: On; onResult?: OnResult } & { [Name in Exclude<keyof PolicySettings, 'on' | 'onResult'>]?: undefined };

export interface PolicyChange {
  /** Only if the policy has this version; 0: only if there is none. */
  expecting?: number | bigint;
  /** Who does it; by default the user of the connection. */
  actor?: string;
  reason?: string;
}
export interface PolicyChanged { version: bigint; action: 'created' | 'changed' | 'same' | 'deleted' }
/** A version of a stored policy. `policy` is the canonical document as JSON, `at` milliseconds since the epoch. */
export interface StoredPolicy { name: string; version: bigint; policy: string; at: number; actor: string; reason: string }
export interface PolicyRecord { version: bigint; isDeleted: boolean; at: number; actor: string; reason: string }
export interface PolicyEvent { name: string; version: bigint; action: 'created' | 'changed' | 'deleted' }
/** The policies that are stored in the server. */
export class StoredPolicies {
  private constructor();
  /** Stores a policy, or changes it: an object, or JSON. */
  set(name: string, document: string | object, options?: PolicyChange): Promise<PolicyChanged>;
  /** Stores one of the last 20 versions again, as a new version. */
  rollback(name: string, version: number | bigint, options?: PolicyChange): Promise<PolicyChanged>;
  /** Deletes a policy and all that lives under it. */
  delete(name: string, options?: PolicyChange): Promise<PolicyChanged>;
  /** The canonical form of a document. Fails with what is wrong with it; nothing is stored. */
  check(document: string | object): Promise<string>;
  /** The policy of this name, or one of its last 20 versions; null if there is none. */
  get(name: string, version?: number | bigint): Promise<StoredPolicy | null>;
  /** All policies there are, by name. A server lists them; one that is too old, or a user who may not list, costs a SCAN of all keys. */
  list(): Promise<StoredPolicy[]>;
  /** The last 20 versions, the newest first. */
  history(name: string): Promise<PolicyRecord[]>;
  /** Changes of all policies from now on: `for await (const change of await client.policies.watch())`. */
  watch(): Promise<PolicyWatch>;
  /** Policies of a file that is read again when it changes. A file that is not valid changes nothing. */
  open(path: string | URL): WatchedPolicies;
}
export interface StoredPolicies {
  /** Policies by name: settings, the text of a JSON or YAML file, or its path. Read once. */
  (file: string | URL | { version: 1; defaults?: PolicySettings; policies: Record<string, PolicySettings> }): Policies;
}
/** Changes of stored policies as they come. It ends when the client is shut down, or when it is left. */
export class PolicyWatch implements AsyncIterableIterator<PolicyEvent> {
  private constructor();
  next(): Promise<IteratorResult<PolicyEvent, undefined>>;
  return(): Promise<IteratorResult<PolicyEvent, undefined>>;
  close(): void;
  [Symbol.asyncIterator](): this;
}
/** Policies of a file that is looked at every second. */
export class WatchedPolicies {
  private constructor();
  readonly names: string[];
  /** Why the file as it is now was not taken, if it was not. */
  readonly problem: string | undefined;
  /** One of them: each call is made under what the file says then. */
  policy(name: string, options?: { on?: On; onResult?: OnResult }): Policy;
  /** Looks at the file at once. */
  look(): void;
}

/** What an item of a batch came to. */
export type ItemResult<T> =
  | { status: 'fulfilled'; value: T }
  | { status: 'rejected'; reason: unknown }
  /** It was running when the batch was stopped. */
  | { status: 'cancelled' }
  /** It never began. */
  | { status: 'not-run' };
export interface DispatcherSettings { workers: number; onError?: 'continue' | 'stop' | 'cancel' }
export class Dispatcher {
  private constructor();
  /**
   * Runs `work` on every item, a few at a time. The results are in the order of the items. If `signal` is aborted it fails with a
   * CancelledError, whose `results` are what was done until then.
   */
  run<T, R>(items: Iterable<T>, work: (item: T, context: Context) => R, options?: { signal?: AbortSignal }): Promise<ItemResult<Awaited<R>>[]>;
  /** The same in the order of completion: the number of each item, from 0, and its result. Items that were not begun come last. */
  runUnordered<T, R>(items: Iterable<T>, work: (item: T, context: Context) => R, options?: { signal?: AbortSignal }): Promise<[number, ItemResult<Awaited<R>>][]>;
  /**
   * Runs `work` on items as they come. The results are in the order of the items: a slow one holds back those after it, and never are more
   * items begun than there are workers whose results were not taken. Left early, what runs is aborted and the source is closed.
   */
  stream<T, R>(items: Iterable<T> | AsyncIterable<T>, work: (item: T, context: Context) => R, options?: { signal?: AbortSignal }): AsyncGenerator<ItemResult<Awaited<R>>, void, void>;
  /** The same in the order of completion: a slow item holds back nobody. */
  streamUnordered<T, R>(items: Iterable<T> | AsyncIterable<T>, work: (item: T, context: Context) => R, options?: { signal?: AbortSignal }): AsyncGenerator<ItemResult<Awaited<R>>, void, void>;
}
export function dispatcher(options: number | DispatcherSettings): Dispatcher;

declare module './client.js' {
  interface Client {
    /** Follows the stored policy of this name: each call runs under it as it is then. Fails if there is none. */
    policy(name: string, options?: Followed): Promise<Policy>;
    policy(name: string, settings: PolicySettings): Policy;
    /** Follows the stored policy of this name; until one is stored and can be read, calls run under these settings. */
    policyOr(name: string, settings: PolicySettings): Promise<Policy>;
    /** The policies that are stored in the server. Called, it reads those of a file. */
    readonly policies: StoredPolicies;
  }
}
