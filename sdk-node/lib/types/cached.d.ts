/** Values that are loaded once for all who ask. */
import type { Away, Serializer, Duration } from './common.js';

export interface CacheSettings {
  ttl?: Duration; negativeTtl?: Duration; stale?: Duration; errorTtl?: Duration; retry?: Duration; onError?: 'share' | 'propagate';
  loadTimeout?: Duration; lease?: Duration; localTtl?: Duration; localSize?: number;
  /** In the last so many percent of its ttl a value is loaded anew by one caller, while everybody has the fresh one. */
  early?: number;
  /** Ttls are shorter at random by up to so many percent. */
  jitter?: number;
  /** How long callers in the process that loads wait while there is a stale value. */
  softTimeout?: Duration; whenAway?: Away;
  /** How values are written. */
  serializer?: Serializer;
}
export interface PlainCacheSettings extends CacheSettings {
  /**
   * Values are deeply frozen, so that all callers may have the same one: a hit of the local tier then costs what it costs in a cache of this
   * process. If not, every caller gets a value of its own, made of JSON anew.
   */
  frozen?: boolean;
}
export type Loaded<T> =
  | { isFound: true; value: T; ageMs: number | null; isStale: boolean; version?: bigint }
  | { isFound: false; value?: undefined };
/** `null` and `undefined`: there is no such thing. */
export type Loader<T> = (key: string, context: { readonly signal: AbortSignal }) => T | null | undefined | PromiseLike<T | null | undefined>;
/** What is said of one value: omitted options are those of the call, or else of the cache. */
export interface ValueOptions {
  /** How long it is fresh. */
  ttl?: Duration;
  /** What it depends on; see `invalidateTag`. At most 16, of 1 to 256 bytes each. */
  tags?: Iterable<string>;
}
export interface CacheCallOptions extends ValueOptions {
  /** How long to wait for a load while there is a stale value. */
  softTimeout?: Duration; signal?: AbortSignal;
}
/** A value as a loader brings it, with what is special about it. */
export class CacheEntry<T> {
  /** `keep: false`: those who wait get it, and nothing is kept. */
  constructor(value: T & {}, options?: ValueOptions & { keep?: boolean });
  readonly value: T; readonly ttl: Duration | undefined; readonly tags: readonly string[]; readonly keep: boolean;
}
/** A function whose results are cached. */
export interface CachedFunction<A extends unknown[], R> {
  (...args: A): Promise<R>;
  /** What was loaded for these arguments is out of date. */
  invalidate(...args: A): Promise<boolean>;
}
type Entries<V> = Loader<V | CacheEntry<V>>;
type Present<R> = Exclude<Awaited<R>, null | undefined>;
type Unwrapped<R> = R extends CacheEntry<infer V> ? V : R;
export class Cached<T> {
  private constructor();
  readonly name: string;
  /** The known value, or what `loader` brings; `undefined`: there is no such thing. */
  get<V extends T = T>(key: string, loader: Entries<V>, options?: CacheCallOptions): Promise<V | undefined>;
  /** The same, with how old it is. */
  lookup<V extends T = T>(key: string, loader: Entries<V>, options?: CacheCallOptions): Promise<Loaded<V>>;
  /** The values of several keys in their order, asked for at once; `loader` is called for each that nobody has. */
  getMany<V extends T = T>(keys: Iterable<string>, loader: Entries<V>, options?: CacheCallOptions): Promise<(V | undefined)[]>;
  /** Loads it anew, while everybody else has the known value as a stale one. */
  refresh<V extends T = T>(key: string, loader: Entries<V>, options?: ValueOptions & { signal?: AbortSignal }): Promise<V | undefined>;
  /** A function whose results are cached: `key` is text, or a function of the arguments. */
  by<A extends unknown[], R>(key: string | ((...args: A) => string), loader: (...args: A) => R, options?: CacheCallOptions): CachedFunction<A, Unwrapped<Present<R>> | undefined>;
  /** Keeps a value that is known without a load. Call it after the change is committed. A load under way is void. */
  set(key: string, value: T & {}, options?: ValueOptions & { signal?: AbortSignal }): Promise<void>;
  /** What was loaded before is not returned to a get that begins after it. */
  invalidate(key: string): Promise<boolean>;
  /** The same, but it is served as stale for as long as that is allowed. */
  invalidateSoft(key: string): Promise<boolean>;
  /** As `invalidate`; while the server is away it is tried again, until a value would have gone by itself. Whether the server knows. */
  invalidateEventually(key: string, options?: { signal?: AbortSignal }): Promise<boolean>;
  /** As `invalidate`, for several keys at once: of how many anything was known. */
  invalidateMany(keys: Iterable<string>): Promise<number>;
  /** Everything that was kept with this tag is out of date, and so is every load under way that is to be kept with it. */
  invalidateTag(tag: string): Promise<void>;
  /** Everything under this name is out of date, and so is every load under way. */
  clear(): Promise<void>;
  /**
   * Invalidates every key that `keys` gives, until it ends: how many. The next key is asked for when the server knows the last, so a generator
   * can acknowledge an event behind the `yield` of its key.
   */
  invalidateOn(keys: Iterable<string> | AsyncIterable<string>, options?: { signal?: AbortSignal }): Promise<number>;
}
export interface Versioned<T> { version: number | bigint; value: T }
export class VersionedCached<T> {
  private constructor();
  readonly name: string;
  get<V extends T = T>(key: string, loader: Loader<Versioned<V>>, options?: { signal?: AbortSignal; atLeast?: number | bigint }): Promise<{ version: bigint; value: V } | undefined>;
  /** The same, with how old it is. */
  lookup<V extends T = T>(key: string, loader: Loader<Versioned<V>>, options?: { signal?: AbortSignal; atLeast?: number | bigint }): Promise<Loaded<V>>;
  /** A function whose results are cached: `key` is text, or a function of the arguments. */
  by<A extends unknown[], V extends T = T>(key: string | ((...args: A) => string), loader: (...args: A) => Versioned<V> | null | undefined | PromiseLike<Versioned<V> | null | undefined>, options?: { signal?: AbortSignal; atLeast?: number | bigint }): CachedFunction<A, { version: bigint; value: V } | undefined>;
  invalidate(key: string): Promise<boolean>;
  invalidateSoft(key: string): Promise<boolean>;
}

declare module './client.js' {
  interface Client {
    cached(name: string, options: CacheSettings & { serializer: 'bytes' }): Cached<Uint8Array>;
    cached<T = unknown>(name: string, options?: PlainCacheSettings): Cached<T>;
    /** Values that carry versions, so that a source that lags behind replaces nothing newer. */
    versionedCached<T = unknown>(name: string, options?: CacheSettings): VersionedCached<T>;
  }
}
