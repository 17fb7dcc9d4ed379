/** Connecting, and the handle from which everything is made. */
import type { Breaker, BreakerSettings } from './breaker.js';
import type { Cached, CacheSettings, VersionedCached } from './cached.js';
import type { Clock, Duration } from './common.js';
import type { Lock, LockSettings, SharedBulkhead, SharedBulkheadSettings } from './holding.js';
import type { Idempotent, IdempotencySettings } from './idempotent.js';
import type { Limit, Limiter, Verdicts } from './limiter.js';
import type { Policies, Policy, PolicySettings } from './policies.js';

export interface ConnectSettings {
  /** The name of this process, which others see. Random by default. */
  name?: string;
  /** How long a command may take before the server counts as not answering. */
  commandTimeout?: Duration;
  /** How many processes share the limits while the server is away. */
  instances?: number;
  /** Whether connecting fails, and says why, if the server cannot be reached. By default the client is away until it can. */
  requireServer?: boolean;
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
export function connect(url: string, options?: ConnectSettings): Promise<Client>;

export type Status = 'healthy' | 'degraded' | 'unhealthy';
export interface Health {
  overall: Status;
  policies: Record<string, Status>;
  /** Why the server is away, if it is, and since when. */
  reason?: string;
  since?: Date;
}
export interface ShutdownReport {
  drained: number; cutOff: number; released: string[]; unreleased: { name: string; reason: string }[]; stragglers: number; isClean: boolean;
}

export class Client implements AsyncDisposable {
  private constructor();
  limiter(name: string, limit: Limit): Limiter;
  breaker(name: string, options?: BreakerSettings): Breaker;
  lock(name: string, options?: LockSettings): Lock;
  sharedBulkhead(name: string, options: number | SharedBulkheadSettings): SharedBulkhead;
  idempotent(name: string, options?: IdempotencySettings): Idempotent;
  cached(name: string, options: CacheSettings & { serializer: 'bytes' }): Cached<Uint8Array>;
  cached<T = unknown>(name: string, options?: CacheSettings): Cached<T>;
  /** Values that carry versions, so that a source that lags behind replaces nothing newer. */
  versionedCached<T = unknown>(name: string, options?: CacheSettings): VersionedCached<T>;
  policy(name: string, settings: PolicySettings): Policy;
  /** Policies by name: settings, the text of a JSON or YAML file, or its path. */
  policies(file: string | URL | { version: 1; defaults?: PolicySettings; policies: Record<string, PolicySettings> }): Policies;
  /** Takes `cost` cells from every limit, or from none. */
  checkAll(limits: Iterable<readonly [Limiter, string]>, cost?: number, options?: { signal?: AbortSignal }): Promise<Verdicts>;
  health(): Health;
  /** Resolves when the server can be reached, or fails after `within` (10 s by default) with the reason why it cannot. */
  waitReady(within?: Duration): Promise<void>;
  readonly isShuttingDown: boolean;
  /** Takes no new calls, waits at most so long (5 s by default) for those in flight, gives back what is held, closes the connections. */
  shutdown(deadline?: Duration): Promise<ShutdownReport>;
  [Symbol.asyncDispose](): Promise<void>;
}
