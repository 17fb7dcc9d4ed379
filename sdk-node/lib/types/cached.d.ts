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
export type Loaded<T> =
  | { isFound: true; value: T; ageMs: number | null; isStale: boolean; version?: bigint }
  | { isFound: false; value?: undefined };
/** `null` and `undefined`: there is no such thing. */
export type Loader<T> = (key: string, context: { readonly signal: AbortSignal }) => T | null | undefined | PromiseLike<T | null | undefined>;
export class Cached<T> {
  private constructor();
  readonly name: string;
  /** The known value, or what `loader` brings; `undefined`: there is no such thing. */
  get<V extends T = T>(key: string, loader: Loader<V>, options?: { signal?: AbortSignal }): Promise<V | undefined>;
  /** The same, with how old it is. */
  lookup<V extends T = T>(key: string, loader: Loader<V>, options?: { signal?: AbortSignal }): Promise<Loaded<V>>;
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
  /** The same, with how old it is. */
  lookup<V extends T = T>(key: string, loader: Loader<Versioned<V>>, options?: { signal?: AbortSignal; atLeast?: number | bigint }): Promise<Loaded<V>>;
  invalidate(key: string): Promise<boolean>;
  invalidateSoft(key: string): Promise<boolean>;
}

declare module './client.js' {
  interface Client {
    cached(name: string, options: CacheSettings & { serializer: 'bytes' }): Cached<Uint8Array>;
    cached<T = unknown>(name: string, options?: CacheSettings): Cached<T>;
    /** Values that carry versions, so that a source that lags behind replaces nothing newer. */
    versionedCached<T = unknown>(name: string, options?: CacheSettings): VersionedCached<T>;
  }
}
