/** The same as index.js, for `import`: one package for both. A test checks that no name is missing. */
import resil from './index.js';

export * from './errors.mjs';

export const {
  connect, wrap, retry,
  timeout, hedge, bulkhead, fallback, dispatcher, handleAll, handleNone, perSecond, perMinute, perHour, perDay,
  problem, rateLimitHeaders, idempotencyKey, requestFingerprint, Client, Limiter, Breaker, Permit, Lock, LockGuard,
  SharedBulkhead, BulkheadGuard, Held, Idempotent, Cached, VersionedCached, Retry, Timeout, Hedge, Bulkhead,
  BulkheadPermit, Fallback, Policy, Policies, Dispatcher,
} = resil;
