'use strict';
/**
 * Locks, shared bulkheads, and what is held of them.
 */
require('./symbols.js');
const { ask, made, wrongType, released } = require('./errors.js');
const given = require('./arguments.js');
const { run } = require('./calls.js');
const { Emitter } = require('./emitter.js');
const { Guard, behind, guarded } = require('./guard.js');
const { listen, unlisten } = require('./kept.js');
const { lookingSignal } = require('./signals.js');

// As it was when this was loaded, whatever a test puts in its place.
const { queueMicrotask } = globalThis;

function info(json) {
  const { exists, holders, holdersTotal, waiters, waitersTotal, lastFence } = JSON.parse(json);
  return {
    exists,
    holders: holders.map(({ owner, fence, held, remaining, mode, meta, isBound }) => ({
      owner, fence: BigInt(fence), heldMs: held, remainingMs: remaining, mode, meta: meta ?? null, isBound,
    })),
    holdersTotal,
    waiters: waiters.map(({ owner, mode, priority, waited }) => ({ owner, mode: mode ?? null, priority: priority ?? null, waitedMs: waited })),
    waitersTotal,
    lastFence: BigInt(lastFence),
  };
}

/** How something was lost, for its guard and its signal. It keeps nothing held. */
class Loss {
  constructor(held) {
    this.held = held;
    this.error = undefined;
    this.isReleased = false;
    this.controller = undefined;
  }

  /** Looks, natively and now. */
  look() {
    if (this.error !== undefined || this.isReleased || this.held.isHeld) return;
    const parts = this.held.loss();
    if (parts !== null) this.happened(parts);
    else this.released();
  }

  /** It was released: nothing protects work that goes on under it. */
  released() {
    if (this.error !== undefined || this.isReleased) return;
    this.isReleased = true;
    this.controller?.abort(released());
  }

  /** The error is the same for all who ask. */
  happened(parts) {
    this.error ??= made(parts);
    this.controller?.abort(this.error);
    return this.error;
  }

  get signal() {
    if (this.controller === undefined) {
      this.controller = new AbortController();
      lookingSignal(this.controller, () => this.look());
      if (this.error !== undefined) this.controller.abort(this.error);
      else if (this.isReleased) this.controller.abort(released());
    }
    this.look();
    return this.controller.signal;
  }
}

/** What is held. It is watched only if somebody looks: by a listener, or through its signal. */
class Held extends Emitter {
  constructor(name, inner) {
    super();
    const held = inner.held();
    behind(this, { _inner: inner, _held: held, _name: name, _loss: new Loss(held), _watch: 0, _isOver: false, _isReleased: false, _wasEmitted: false });
  }

  _added(event, listener) {
    if (event !== 'lost') return;
    // A listener that is added after the event is called all the same.
    if (this._wasEmitted) queueMicrotask(() => listener.call(this, this._loss.error));
    else this._beginWatch();
  }

  _beginWatch() {
    if (this._watch !== 0 || this._isOver) return;
    this._watch = listen(this, '_lost');
    this._held.watch(this._watch);
  }

  /** It is lost or let go of: there is nothing to watch any more, and nothing is kept for it. */
  _endWatch() {
    this._isOver = true;
    if (this._watch === 0) return;
    this._held.unwatch();
    unlisten(this._watch);
    this._watch = 0;
  }

  _lost(parts) {
    this._tell(this._loss.happened(parts));
  }

  _tell(error) {
    this._endWatch();
    if (this._wasEmitted) return;
    this._wasEmitted = true;
    this.emit('lost', error);
  }

  /** Lets go, by `begin`. The signal is aborted from here on, but for a guard that is still held because `begin` was refused. */
  async _letGo(begin) {
    this._loss.look();
    const isWatched = this._watch !== 0;
    const done = run(undefined, begin);
    if (this._inner.isReleased) {
      this._isReleased = true;
      this._endWatch();
      this._loss.released();
    }
    try {
      return { heldMs: await done };
    } catch (error) {
      if (isWatched && error?.code === 'LOCK_LOST') this._tell(this._loss.error ?? error);
      throw error;
    }
  }

  get signal() {
    this._beginWatch();
    return this._loss.signal;
  }

  get name() { return this._name; }
  get isHeld() { return this._held.isHeld; }
  get remainingMs() { return this._held.remainingMs; }
  get owner() { return this._held.owner; }
  get isUnprotected() { return this._held.isUnprotected; }
  ensure() { ask(() => this._held.ensure()); }
}

class LockGuard extends Held {
  get fence() { return this._held.fence ?? null; }

  async extend(lease) {
    const span = given.duration('lease', lease);
    await run(undefined, () => this._inner.extend(span));
  }

  async check() { return run(undefined, () => this._inner.check()); }

  async release() { return this._letGo(() => this._inner.release()); }

  /** Of what was released before there is nothing to do; that it was lost is for the holder to look at, not for the end. */
  async [Symbol.asyncDispose]() {
    if (!this._isReleased) await this.release().catch(unlessLost);
  }
}

class BulkheadGuard extends Held {
  async leave() { return this._letGo(() => this._inner.release()); }

  async [Symbol.asyncDispose]() {
    if (!this._isReleased) await this.leave().catch(unlessLost);
  }
}

function unlessLost(error) {
  if (error?.code !== 'LOCK_LOST') throw error;
}

class Lock {
  constructor(client, name, options) {
    given.nonEmpty('name', name);
    const json = given.settings('options', options);
    const inner = given.reading([], () => client.lock(name, json));
    behind(this, { _inner: inner, _guard: new Guard(inner.guard(), [{ isLeased: true }]), _name: name });
  }

  get name() { return this._name; }

  async acquire(options) {
    given.atMost('acquire', arguments, 1);
    const { wait, signal } = given.only('options', options, ['wait', 'signal']);
    const span = given.optionalDuration('wait', wait);
    return new LockGuard(this._name, await run(given.signal(signal), () => this._inner.acquire(span)));
  }

  async untilAcquired(options) {
    given.atMost('untilAcquired', arguments, 1);
    const { signal } = given.only('options', options, ['signal']);
    return new LockGuard(this._name, await run(given.signal(signal), () => this._inner.untilAcquired()));
  }

  async tryAcquire(options) {
    given.atMost('tryAcquire', arguments, 1);
    const { signal } = given.only('options', options, ['signal']);
    return this.acquire({ wait: 0, signal });
  }

  async info() { return info(await run(undefined, () => this._inner.info())); }

  async breakLock(actor = '', reason = '') {
    given.text('actor', actor);
    given.text('reason', reason);
    return run(undefined, () => this._inner.breakLock(actor, reason));
  }

  async check(owner, fence) {
    given.text('owner', owner);
    const number = fence === undefined || fence === null ? undefined : given.counter('fence', fence);
    return run(undefined, () => this._inner.check(owner, number));
  }
}

class SharedBulkhead {
  constructor(client, name, options) {
    given.nonEmpty('name', name);
    if (options === undefined) throw wrongType('options', 'a number, or an object with maxConcurrentCalls', options);
    const json = given.settings('options', typeof options === 'number' ? { maxConcurrentCalls: options } : options);
    const inner = given.reading([], () => client.sharedBulkhead(name, json));
    behind(this, { _inner: inner, _guard: new Guard(inner.guard(), [{ isLeased: true }]), _name: name });
  }

  get name() { return this._name; }

  async enter(options) {
    given.atMost('enter', arguments, 1);
    const { wait, signal } = given.only('options', options, ['wait', 'signal']);
    const span = given.optionalDuration('wait', wait);
    return new BulkheadGuard(this._name, await run(given.signal(signal), () => this._inner.enter(span)));
  }

  async tryEnter(options) {
    given.atMost('tryEnter', arguments, 1);
    const { signal } = given.only('options', options, ['signal']);
    return this.enter({ wait: 0, signal });
  }

  async info() { return info(await run(undefined, () => this._inner.info())); }
}
[Lock, SharedBulkhead].forEach(guarded);

module.exports = {
  Held, LockGuard, BulkheadGuard, Lock, SharedBulkhead,
  made: { lock: (...said) => new Lock(...said), sharedBulkhead: (...said) => new SharedBulkhead(...said) },
};
