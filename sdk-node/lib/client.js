'use strict';
/**
 * Connecting, and the handle from which everything is made.
 */
require('./symbols.js');
const native = require('./native.js');
const { ask } = require('./errors.js');
const given = require('./arguments.js');
const { run } = require('./calls.js');
const { behind } = require('./guard.js');
const { listenAt, NOTICES } = require('./kept.js');
const { clockOf } = require('./policies.js');
const { Limiter, checkAll } = require('./limiter.js');
const { Breaker } = require('./breaker.js');
const { Lock, SharedBulkhead } = require('./holding.js');
const { Cached, VersionedCached } = require('./cached.js');
const { Idempotent } = require('./stored.js');
const { policy, policies } = require('./whole.js');

/** How long `await using` waits for calls in flight. */
const DISPOSE_DEADLINE = '5s';
/** How long `waitReady` waits by default. */
const READY_WITHIN = '10s';

class Client {
  constructor(inner) { behind(this, { _inner: inner }); }

  limiter(name, limit) {
    given.atMost('limiter', arguments, 2);
    return new Limiter(this._inner, name, limit);
  }
  breaker(name, options) {
    given.atMost('breaker', arguments, 2);
    return new Breaker(this._inner, name, options);
  }
  lock(name, options) {
    given.atMost('lock', arguments, 2);
    return new Lock(this._inner, name, options);
  }
  sharedBulkhead(name, options) {
    given.atMost('sharedBulkhead', arguments, 2);
    return new SharedBulkhead(this._inner, name, options);
  }
  idempotent(name, options) {
    given.atMost('idempotent', arguments, 2);
    return new Idempotent(this._inner, name, options);
  }
  cached(name, options) {
    given.atMost('cached', arguments, 2);
    return new Cached(this._inner, name, options);
  }
  versioned(name, options) {
    given.atMost('versioned', arguments, 2);
    return new VersionedCached(this._inner, name, options);
  }
  policy(name, settings) {
    given.atMost('policy', arguments, 2);
    return policy(this._inner, name, settings);
  }
  policies(file) {
    given.atMost('policies', arguments, 1);
    return policies(this._inner, file);
  }
  checkAll(limits, cost, options) {
    given.atMost('checkAll', arguments, 3);
    return checkAll(this._inner, limits, cost, options);
  }

  health() {
    const { since, ...health } = JSON.parse(ask(() => this._inner.health()));
    return since === undefined ? health : { ...health, since: new Date(since) };
  }

  async waitReady(within = READY_WITHIN) {
    given.atMost('waitReady', arguments, 1);
    const span = given.duration('within', within);
    await run(undefined, () => this._inner.waitReady(span));
  }

  get isShuttingDown() { return this._inner.isShuttingDown; }

  async shutdown(deadline = DISPOSE_DEADLINE) {
    const span = given.duration('deadline', deadline);
    const [json, isClean] = await run(undefined, () => this._inner.shutdown(span));
    const { unreleased, ...report } = JSON.parse(json);
    return { ...report, unreleased: unreleased.map(([name, reason]) => ({ name, reason })), isClean: isClean === 'true' };
  }

  async [Symbol.asyncDispose]() { await this.shutdown(); }
}

/** A server that is away is no error, and a mistyped host looks the same: it is said once each time. */
const notices = {
  away({ address, reason }) {
    process.emitWarning(`the server at ${address} is away (${reason}): calls are decided without it, as whenAway says, until it is back`, { type: 'ResilWarning', code: 'RESIL_AWAY' });
  },
};
listenAt(NOTICES, notices, 'away');

async function connect(url, options) {
  given.atMost('connect', arguments, 2);
  given.text('url', url);
  const { clock, signal, ...settings } = given.options('options', options);
  const json = given.settings('options', settings);
  const behindClock = clockOf(clock);
  return new Client(await run(given.signal(signal), () => native.connect(url, json, behindClock)));
}

module.exports = { Client, connect };
