'use strict';
/**
 * Whole policies, policies of files, and batches.
 */
const fs = require('node:fs');
const native = require('./native.js');
const { ask, wrongType, CancelledError } = require('./errors.js');
const given = require('./arguments.js');
const { Shape, through } = require('./calls.js');
const { Guard, PARTICULAR, behind, guarded, judgeOf } = require('./guard.js');
const { Idempotent, fingerprint, outcomeOf } = require('./stored.js');

class Policy {
  constructor(inner, on) {
    if (on === undefined && inner.judges) throw wrongType('on', 'said, because there is a retry or a hedge (handleAll, classes, or a function)', on);
    const judge = on === undefined ? undefined : judgeOf('on', on);
    behind(this, { _inner: inner, _guard: new Guard(inner.guard(), [{ judge }]), _judge: judge });
  }

  get name() { return this._inner.name; }
  get order() { return this._inner.order; }
  get warnings() { return this._inner.warnings; }

  async callOnce(idempotent, key, request, fn, options) {
    given.atMost('callOnce', arguments, 5);
    if (!(idempotent instanceof Idempotent)) throw wrongType('idempotent', 'made by client.idempotent', idempotent);
    given.text('key', key);
    const print = fingerprint(request);
    given.func('fn', fn);
    const { signal, ...particular } = given.only('options', options, PARTICULAR);
    const json = given.settings('options', particular);
    const begin = () => this._inner.callOnce(idempotent._inner, key, print, json);
    return outcomeOf(idempotent, fn, given.signal(signal), begin, this._judge);
  }
}
guarded(Policy);

function policy(client, name, said) {
  given.nonEmpty('name', name);
  const { on, ...settings } = given.options('settings', said);
  if ('name' in settings) throw wrongType('settings.name', 'left out: it is said apart', settings.name);
  const json = given.settings('settings', settings);
  return new Policy(ask(() => client.policy(name, json)), on);
}

class Policies {
  constructor(inner) { behind(this, { _inner: inner }); }

  get names() { return this._inner.names; }

  policy(name, options) {
    given.text('name', name);
    const { on } = given.only('options', options, ['on']);
    return new Policy(ask(() => this._inner.policy(name)), on);
  }
}

/** Text has lines or braces; a path has neither. */
function policies(client, file) {
  if (typeof file === 'object' && file !== null && !(file instanceof URL)) {
    const json = given.settings('file', file);
    return new Policies(ask(() => client.policies(json)));
  }
  if (!(file instanceof URL)) given.nonEmpty('file', file);
  const isText = typeof file === 'string' && /[\n{]/.test(file);
  const text = isText ? file : fs.readFileSync(file, 'utf8');
  return new Policies(ask(() => client.policiesOfText(text)));
}

/** Each item is an attempt of one call; its value is kept under its number. */
class BatchShape extends Shape {
  constructor(items, work, results) {
    super();
    this.items = items;
    this.work = work;
    this.results = results;
    this.begun = new Set();
  }

  async run(call, context, { item }) {
    this.begun.add(item);
    try {
      const value = await this.work(this.items[item], context);
      this.results[item] = { status: 'fulfilled', value };
    } catch (reason) {
      this.results[item] = { status: 'rejected', reason };
      throw reason;
    }
    return undefined;
  }

  /** What was done when it was given up. */
  soFar() {
    return this.items.map((_, at) => this.results[at] ?? { status: this.begun.has(at) ? 'cancelled' : 'not-run' });
  }
}

const CANCELLED = 2;

class Dispatcher {
  constructor(options) {
    if (options === undefined) throw wrongType('options', 'a number, or an object with workers', options);
    const json = given.settings('options', typeof options === 'number' ? { workers: options } : options);
    behind(this, { _inner: ask(() => native.makeDispatcher(json)) });
  }

  async run(items, work, options) {
    if (items === null || items === undefined || typeof items[Symbol.iterator] !== 'function') throw wrongType('items', 'something to iterate over', items);
    given.func('work', work);
    const { signal } = given.only('options', options, ['signal']);
    const all = [...items];
    const results = new Array(all.length);
    const shape = new BatchShape(all, work, results);
    let statuses;
    try {
      statuses = await through(shape, work, given.signal(signal), () => this._inner.run(all.length));
    } catch (error) {
      if (error instanceof CancelledError) error.results = shape.soFar();
      throw error;
    }
    return statuses.map((status, at) => (status < CANCELLED ? results[at] : { status: status === CANCELLED ? 'cancelled' : 'not-run' }));
  }
}

policies.most = 1;

module.exports = {
  Policy, Policies, Dispatcher, dispatcher(options) { given.atMost('dispatcher', arguments, 1); return new Dispatcher(options); },
  made: { policy, policies },
};
