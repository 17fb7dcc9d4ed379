/** The same as index.js, for `import`: one package for both. Generated from commands/handles.json by `cargo run -p resil-harness --bin generate`. Do not edit. */
import resil from './index.js';

export * from './errors.mjs';

export const {
  Client, connect,
  Breaker, Permit,
  CacheEntry, Cached, VersionedCached,
  DeadLetters, RedriveRun, TakenLetter,
  wrap,
  BulkheadGuard, Held, Lock, LockGuard, SharedBulkhead,
  idempotencyKey, problem, rateLimitHeaders, requestFingerprint,
  Limiter, perDay, perHour, perMinute, perSecond,
  Locks, LocksGuard,
  Budget, Bulkhead, BulkheadPermit, Fallback, Hedge, Retry, Timeout, budget, bulkhead, fallback, handleAll, handleNone, hedge, retry, timeout,
  Idempotent,
  PolicyWatch, StoredPolicies, WatchedPolicies,
  telemetry,
  Dispatcher, Policies, Policy, dispatcher,
  Outbox, ProcessedEvents, Publisher, Upcasters, WorkError, Worker,
} = resil;
