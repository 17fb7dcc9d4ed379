'use strict';
/**
 * Resil for Node. The types of all this, with what each promises, are in types/.
 */
const { classes } = require('./errors.js');
const { wrap } = require('./guard.js');
const policies = require('./policies.js');
const { Client, connect } = require('./client.js');
const { Limiter, perSecond, perMinute, perHour, perDay } = require('./limiter.js');
const { Breaker, Permit } = require('./breaker.js');
const { Held, LockGuard, BulkheadGuard, Lock, SharedBulkhead } = require('./holding.js');
const { Cached, VersionedCached } = require('./cached.js');
const { Idempotent } = require('./stored.js');
const { Policy, Policies, Dispatcher, dispatcher } = require('./whole.js');
const http = require('./http.js');

const { retry, timeout, hedge, bulkhead, fallback, handleAll, handleNone, Retry, Timeout, Hedge, Bulkhead, BulkheadPermit, Fallback } = policies;

module.exports = {
  ...classes,
  connect, wrap, retry, timeout, hedge, bulkhead, fallback, dispatcher, handleAll, handleNone,
  perSecond, perMinute, perHour, perDay, ...http,
  Client, Limiter, Breaker, Permit, Lock, LockGuard, SharedBulkhead, BulkheadGuard, Held, Idempotent, Cached, VersionedCached,
  Retry, Timeout, Hedge, Bulkhead, BulkheadPermit, Fallback, Policy, Policies, Dispatcher,
};
