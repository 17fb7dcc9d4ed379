'use strict';
/**
 * Several locks at once: all of them, or none.
 */
require('./symbols.js');
const { ask, wrongType } = require('./errors.js');
const given = require('./arguments.js');
const { run } = require('./calls.js');
const { behind } = require('./guard.js');

class LocksGuard {
  constructor(inner) {
    behind(this, { _inner: inner, _isReleased: false });
  }

  get fences() { return this._inner.fences.map((fence) => fence ?? null); }
  get isHeld() { return this._inner.isHeld; }
  ensure() { ask(() => this._inner.ensure()); }

  async release() {
    const done = run(undefined, () => this._inner.release());
    this._isReleased = true;
    await done;
  }

  /** Of what was released before there is nothing to do. */
  async [Symbol.asyncDispose]() {
    if (this._isReleased) return;
    await this.release().catch((error) => { if (error?.code !== 'LOCK_LOST') throw error; });
  }
}

class Locks {
  constructor(client, names, options) {
    if (!Array.isArray(names)) throw wrongType('names', 'a list of names', names);
    names.forEach((name, at) => given.nonEmpty(`names[${at}]`, name));
    const json = given.settings('options', options);
    behind(this, { _inner: given.reading([], () => client.locks(names, json)) });
  }

  get names() { return this._inner.names; }

  async acquire(options) {
    given.atMost('acquire', arguments, 1);
    const { wait, signal } = given.only('options', options, ['wait', 'signal']);
    const span = given.optionalDuration('wait', wait);
    return new LocksGuard(await run(given.signal(signal), () => this._inner.acquire(span)));
  }

  async tryAcquire(options) {
    given.atMost('tryAcquire', arguments, 1);
    const { signal } = given.only('options', options, ['signal']);
    return this.acquire({ wait: 0, signal });
  }
}

function lockName(client, domain, resource, id) {
  given.text('domain', domain);
  given.text('resource', resource);
  given.text('id', id);
  return ask(() => client.lockName(domain, resource, id));
}
lockName.most = 3;

module.exports = {
  Locks, LocksGuard,
  made: { locks: (...said) => new Locks(...said), lockName },
};
