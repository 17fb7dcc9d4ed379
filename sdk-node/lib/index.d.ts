/**
 * Resil for Node: limits, breakers, locks, idempotency and cached loads that a whole fleet shares, and the policies around
 * them. Everything runs on `memory://` without a server, and with the same verdicts on a server.
 *
 * Durations are numbers of milliseconds, or text such as `"250ms"` (units: us, ms, s, m, h, d).
 * What comes back is in milliseconds, and says so in its name. Counters that may pass 2^53 are bigints.
 *
 * Generated from types/ by `cargo run -p resil-harness --bin generate`. Do not edit.
 */
export * from './types/breaker.js';
export * from './types/cached.js';
export * from './types/client.js';
export * from './types/common.js';
export * from './types/dead_letters.js';
export * from './types/errors.js';
export * from './types/guard.js';
export * from './types/holding.js';
export * from './types/http.js';
export * from './types/idempotent.js';
export * from './types/limiter.js';
export * from './types/policies.js';
export * from './types/worker.js';
