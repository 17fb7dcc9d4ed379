'use strict';
/** Resil for Node. The types of all this, with what each promises, are in types/. Generated from commands/handles.json by `cargo run -p resil-harness --bin generate`. Do not edit. */
const { classes } = require('./errors.js');
const { Client, connect } = require('./client.js');
const { Breaker, Permit } = require('./breaker.js');
const { CacheEntry, Cached, VersionedCached } = require('./cached.js');
const { DeadLetters, RedriveRun, TakenLetter } = require('./dead_letters.js');
const { wrap } = require('./guard.js');
const { BulkheadGuard, Held, Lock, LockGuard, SharedBulkhead } = require('./holding.js');
const { idempotencyKey, problem, rateLimitHeaders, requestFingerprint } = require('./http.js');
const { Limiter, perDay, perHour, perMinute, perSecond } = require('./limiter.js');
const { Locks, LocksGuard } = require('./locks.js');
const { Budget, Bulkhead, BulkheadPermit, Fallback, Hedge, Retry, Timeout, budget, bulkhead, fallback, handleAll, handleNone, hedge, retry, timeout } = require('./policies.js');
const { Idempotent } = require('./stored.js');
const { PolicyWatch, StoredPolicies, WatchedPolicies } = require('./stored_policies.js');
const { telemetry } = require('./telemetry.js');
const { Dispatcher, Policies, Policy, dispatcher } = require('./whole.js');
const { Outbox, ProcessedEvents, Publisher, Upcasters, WorkError, Worker } = require('./worker.js');

module.exports = {
  ...classes,
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
};
