'use strict';
/**
 * Whole policies, policies of files, and batches.
 */
const fs = require('node:fs');
const native = require('./native.js');
const { ask, shown, wrongType, CancelledError, InvalidArgumentError } = require('./errors.js');
const given = require('./arguments.js');
const { Shape, run, through } = require('./calls.js');
const { Guard, PARTICULAR, behind, guarded, judgeOf, resultJudgeOf } = require('./guard.js');
const { budgetOf } = require('./policies.js');
const { Idempotent, fingerprint, outcomeOf } = require('./stored.js');

class Policy {
  constructor(inner, { on, onResult } = {}) {
    if (on === undefined && onResult === undefined && inner.judges) throw wrongType('on', 'said, because there is a retry or a hedge (handleAll, classes, or a function)', on);
    const layer = { judge: on === undefined ? undefined : judgeOf('on', on), onResult: resultJudgeOf('onResult', onResult) };
    behind(this, { _inner: inner, _guard: new Guard(inner.guard(), [layer]), _judge: layer.judge, _judgesResults: onResult !== undefined });
  }

  get name() { return this._inner.name; }
  get order() { return this._inner.order; }
  get warnings() { return this._inner.warnings; }
  get version() { return this._inner.version ?? undefined; }
  get problem() { return this._inner.problem ?? undefined; }

  async callOnce(idempotent, key, request, fn, options) {
    given.atMost('callOnce', arguments, 5);
    if (this._judgesResults) throw new InvalidArgumentError('callOnce records every result: let fn throw in place of onResult');
    if (!(idempotent instanceof Idempotent)) throw wrongType('idempotent', 'made by client.idempotent', idempotent);
    given.nonEmpty('key', key);
    const print = fingerprint(request);
    given.func('fn', fn);
    const { signal, ...particular } = given.only('options', options, PARTICULAR);
    const json = given.settings('options', particular);
    const begin = () => this._inner.callOnce(idempotent._inner, key, print, json, idempotent._results.remember !== undefined);
    return outcomeOf(idempotent, fn, given.signal(signal), begin, this._judge);
  }
}
guarded(Policy);

/** Without settings it is the stored one that is followed. */
function isFollowed(said) {
  if (said === undefined) return true;
  if (typeof said !== 'object' || said === null) return false;
  const names = Object.keys(said);
  return names.length > 0 && names.every((name) => JUDGES.includes(name));
}

/** What is no setting: which errors may go away, and which results are failures. */
const JUDGES = ['on', 'onResult'];

async function followed(client, name, judges, json) {
  if (judges.on !== undefined) judgeOf('on', judges.on);
  resultJudgeOf('onResult', judges.onResult);
  return new Policy(await run(undefined, () => client.followPolicy(name, json)), judges);
}

async function policyOr(client, name, said) {
  given.nonEmpty('name', name);
  if (said === undefined) throw wrongType('settings', 'an object', said);
  const { on, onResult, ...settings } = given.options('settings', said);
  return followed(client, name, { on, onResult }, given.settings('settings', settings));
}

function policy(client, name, said) {
  given.nonEmpty('name', name);
  if (isFollowed(said)) return followed(client, name, said ?? {});
  const { on, onResult, ...settings } = given.options('settings', said);
  if ('name' in settings) throw wrongType('settings.name', 'left out: it is said apart', settings.name);
  const [retry, shared] = typeof settings.retry === 'object' && settings.retry !== null ? budgetOf(settings.retry) : [settings.retry, undefined];
  const json = given.settings('settings', { ...settings, retry });
  return new Policy(given.reading(JUDGES, () => client.policy(name, json, shared)), { on, onResult });
}

class Policies {
  constructor(inner) { behind(this, { _inner: inner }); }

  get names() { return this._inner.names; }

  policy(name, options) {
    given.text('name', name);
    const judges = given.only('options', options, JUDGES);
    return new Policy(ask(() => this._inner.policy(name)), judges);
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

/** What an item came to, of its status. */
function cameTo(status, result) {
  return status < CANCELLED ? result : { status: status === CANCELLED ? 'cancelled' : 'not-run' };
}

/** From the one who gives to the one who takes, one at a time. */
class Handover {
  constructor() {
    this.offered = undefined;
    this.end = undefined;
    this.wake = () => {};
  }

  /** Resolves when it is taken. */
  offer(result) {
    return new Promise((taken) => {
      this.offered = { result, taken };
      this.wake();
    });
  }

  close(end) {
    this.end = end;
    this.wake();
  }

  /** `{result}`, or how it ended. */
  async take() {
    while (this.offered === undefined && this.end === undefined) await new Promise((wake) => { this.wake = wake; });
    if (this.offered === undefined) return this.end;
    const { result, taken } = this.offered;
    this.offered = undefined;
    taken();
    return { result };
  }
}

/** Items that are asked for, worked on and handed over as the native half says. */
class StreamShape extends Shape {
  constructor(source, work, handover) {
    super();
    this.source = source;
    this.work = work;
    this.handover = handover;
    this.items = new Map();
    this.results = new Map();
    this.isOpen = true;
  }

  /** `isQuiet`: there is an error to tell of already. */
  async close(isQuiet) {
    if (!this.isOpen) return;
    this.isOpen = false;
    try {
      await this.source.return?.();
    } catch (error) {
      if (!isQuiet) throw error;
    }
  }

  async run(call, context, { ask, item, status }) {
    if (ask === 'next') return this.take(item);
    if (ask === 'give') return this.give(item, status);
    try {
      const value = await this.work(this.items.get(item), context);
      this.results.set(item, { status: 'fulfilled', value });
    } catch (reason) {
      this.results.set(item, { status: 'rejected', reason });
      throw reason;
    } finally {
      this.items.delete(item);
    }
    return undefined;
  }

  /** Whether there is an item of this number. */
  async take(item) {
    try {
      const next = await this.source.next();
      if (typeof next !== 'object' || next === null) throw new TypeError(`items gave ${shown(next)} in place of { done, value }`);
      if (next.done) this.isOpen = false;
      // As `for await` does with an iterable of promises.
      else this.items.set(item, await next.value);
      return next.done ? undefined : THERE;
    } catch (error) {
      // A source that failed is closed.
      this.isOpen = false;
      throw error;
    }
  }

  async give(item, status) {
    const result = cameTo(status, this.results.get(item));
    this.results.delete(item);
    await this.handover.offer(result);
  }

  /** Bytes, though none, say that there is an item. */
  bytes(call, value) { return value; }
}

const THERE = Buffer.alloc(0);

function sourceOf(items) {
  const begin = items?.[Symbol.asyncIterator] ?? items?.[Symbol.iterator];
  if (typeof begin !== 'function') throw wrongType('items', 'something to iterate over', items);
  return begin.call(items);
}

class Dispatcher {
  constructor(options) {
    if (options === undefined) throw wrongType('options', 'a number, or an object with workers', options);
    const json = given.settings('options', typeof options === 'number' ? { workers: options } : options);
    behind(this, { _inner: ask(() => native.makeDispatcher(json)) });
  }

  async run(items, work, options) {
    given.atMost('run', arguments, 3);
    const begin = (count) => this._inner.run(count);
    return this._batch(items, work, options, begin, (statuses, results) => statuses.map((status, at) => cameTo(status, results[at])));
  }

  async runUnordered(items, work, options) {
    given.atMost('runUnordered', arguments, 3);
    const begin = (count) => this._inner.runUnordered(count);
    const pair = (results) => (item, at, all) => (at % 2 === 0 ? [[item, cameTo(all[at + 1], results[item])]] : []);
    return this._batch(items, work, options, begin, (numbers, results) => numbers.flatMap(pair(results)));
  }

  async _batch(items, work, options, begin, finish) {
    if (items === null || items === undefined || typeof items[Symbol.iterator] !== 'function') throw wrongType('items', 'something to iterate over', items);
    given.func('work', work);
    const { signal } = given.only('options', options, ['signal']);
    const all = [...items];
    const results = new Array(all.length);
    const shape = new BatchShape(all, work, results);
    let statuses;
    try {
      statuses = await through(shape, work, given.signal(signal), () => begin(all.length));
    } catch (error) {
      if (error instanceof CancelledError) error.results = shape.soFar();
      throw error;
    }
    return finish(statuses, results);
  }

  stream(items, work, options) {
    given.atMost('stream', arguments, 3);
    return this._stream(items, work, options, true);
  }

  streamUnordered(items, work, options) {
    given.atMost('streamUnordered', arguments, 3);
    return this._stream(items, work, options, false);
  }

  _stream(items, work, options, isOrdered) {
    given.func('work', work);
    const { signal } = given.only('options', options, ['signal']);
    return streamed(sourceOf(items), work, given.signal(signal), () => this._inner.stream(isOrdered));
  }
}

/** Left early, what runs is aborted, and the source is closed. */
async function* streamed(source, work, signal, begin) {
  const [handover, leaving] = [new Handover(), new AbortController()];
  const onAbort = () => leaving.abort(signal.reason);
  if (signal?.aborted) onAbort();
  signal?.addEventListener('abort', onAbort, { once: true });
  const shape = new StreamShape(source, work, handover);
  const ended = through(shape, work, leaving.signal, begin);
  ended.then(() => handover.close({}), (error) => handover.close({ error }));
  let end;
  try {
    for (;;) {
      const taken = await handover.take();
      if (!('result' in taken)) {
        end = taken;
        break;
      }
      yield taken.result;
    }
  } finally {
    signal?.removeEventListener('abort', onAbort);
    leaving.abort();
    await shape.close(end?.error !== undefined);
  }
  if (end.error !== undefined) throw end.error;
}

policies.most = 1;

module.exports = {
  Policy, Policies, Dispatcher, dispatcher(options) { given.atMost('dispatcher', arguments, 1); return new Dispatcher(options); },
  policies, made: { policy, policyOr },
};
