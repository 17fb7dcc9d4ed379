'use strict';
/**
 * Policies that are stored in the server, or stand in a file that is watched.
 */
const { fileURLToPath } = require('node:url');
const { ask, wrongType } = require('./errors.js');
const given = require('./arguments.js');
const { run } = require('./calls.js');
const { behind } = require('./guard.js');
const { Policy, policies } = require('./whole.js');

/** Versions may pass 2^53, which a number of JSON would not survive. Inside of a text no quote stands before the colon without a backslash. */
function read(json) {
  const safe = json.replace(/"version":(\d+)/g, '"version":"$1"');
  return JSON.parse(safe, (name, value) => (name === 'version' ? BigInt(value) : value));
}

/** JSON as text, or what becomes JSON. One that is missing by mistake must not become a policy that protects nothing. */
function documentOf(said) {
  if (said === undefined) throw wrongType('document', 'an object, or JSON', said);
  return typeof said === 'string' ? given.text('document', said) : given.settings('document', given.options('document', said));
}

function optionalCounter(name, said) {
  return said === undefined || said === null ? undefined : given.counter(name, said);
}

/** How a change is made: `[expecting, actor, reason]`. */
function how(options) {
  const { expecting, actor, reason } = given.only('options', options, ['expecting', 'actor', 'reason']);
  return [optionalCounter('expecting', expecting), given.optionalText('actor', actor), given.optionalText('reason', reason)];
}

/** Changes as they come, until the client is shut down, or it is closed. */
class PolicyWatch {
  constructor(inner) { behind(this, { _inner: inner }); }

  async next() {
    const json = await run(undefined, () => this._inner.next());
    return json === null || json === undefined ? { done: true, value: undefined } : { done: false, value: read(json) };
  }

  async return() {
    this.close();
    return { done: true, value: undefined };
  }

  close() { this._inner.close(); }

  [Symbol.asyncIterator]() { return this; }
}

/** Policies of a file that is looked at every second. */
class WatchedPolicies {
  constructor(inner) { behind(this, { _inner: inner }); }

  get names() { return this._inner.names; }
  get problem() { return this._inner.problem ?? undefined; }
  look() { this._inner.look(); }

  policy(name, options) {
    given.text('name', name);
    const judges = given.only('options', options, ['on', 'onResult']);
    return new Policy(ask(() => this._inner.policy(name)), judges);
  }
}

/** It is a function, too: of a file, that is read once. */
class StoredPolicies {
  async set(name, document, options) {
    given.atMost('set', arguments, 3);
    const [key, json, said] = [given.text('name', name), documentOf(document), how(options)];
    return read(await run(undefined, () => this._inner.set(key, json, ...said)));
  }

  async rollback(name, version, options) {
    given.atMost('rollback', arguments, 3);
    const [key, to, said] = [given.text('name', name), given.counter('version', version), how(options)];
    return read(await run(undefined, () => this._inner.rollback(key, to, ...said)));
  }

  async delete(name, options) {
    given.atMost('delete', arguments, 2);
    const [key, said] = [given.text('name', name), how(options)];
    return read(await run(undefined, () => this._inner.delete(key, ...said)));
  }

  async check(document) {
    given.atMost('check', arguments, 1);
    const json = documentOf(document);
    return run(undefined, () => this._inner.check(json));
  }

  async get(name, version) {
    given.atMost('get', arguments, 2);
    const [key, of] = [given.text('name', name), optionalCounter('version', version)];
    const found = await run(undefined, () => this._inner.get(key, of));
    return found === null || found === undefined ? null : read(found);
  }

  async list() {
    given.atMost('list', arguments, 0);
    return read(await run(undefined, () => this._inner.list()));
  }

  async history(name) {
    given.atMost('history', arguments, 1);
    const key = given.text('name', name);
    return read(await run(undefined, () => this._inner.history(key)));
  }

  async watch() {
    given.atMost('watch', arguments, 0);
    return new PolicyWatch(await run(undefined, () => this._inner.watch()));
  }

  open(path) {
    given.atMost('open', arguments, 1);
    const file = path instanceof URL ? fileURLToPath(path) : given.nonEmpty('path', path);
    return new WatchedPolicies(ask(() => this._client.openPolicies(file)));
  }
}
Object.setPrototypeOf(StoredPolicies.prototype, Function.prototype);

/** `client.policies` */
function storedPolicies(client) {
  const handle = (...said) => {
    given.atMost('policies', said, 1);
    return policies(client, ...said);
  };
  Object.setPrototypeOf(handle, StoredPolicies.prototype);
  behind(handle, { _inner: client.storedPolicies(), _client: client });
  return handle;
}

module.exports = { PolicyWatch, StoredPolicies, WatchedPolicies, storedPolicies };
