'use strict';
/**
 * Messages that failed: one ledger decides whether each is retried or dead. Those that are taken are settled by hand, or by a loop.
 */
const native = require('./native.js');
const { atOnce, messageOf, wrongType } = require('./errors.js');
const given = require('./arguments.js');
const { Shape, run, through } = require('./calls.js');
const { behind } = require('./guard.js');
const { discreet } = require('./inspected.js');

/** What is said of a failure, among the options of a message. */
const NOTE = ['failureClass', 'group', 'after', 'prior', 'count'];
/** Durations say so in their names. */
const SPANS = { delay: 'delayMs', period: 'periodMs', base: 'baseMs', cap: 'capMs', afterMax: 'afterMaxMs' };

function named(value) {
  if (Array.isArray(value)) return value.map(named);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, of]) => [SPANS[name] ?? name, named(of)]));
}

function read(json) {
  return named(JSON.parse(json));
}

function bytes(name, said) {
  if (said === undefined || said === null) return undefined;
  if (typeof said === 'string') return Buffer.from(given.text(name, said));
  if (said instanceof Uint8Array) return Buffer.from(said.buffer, said.byteOffset, said.byteLength);
  throw wrongType(name, 'a string or a Uint8Array', said);
}

/** A text, or an error: its name and its message. */
function words(error) {
  if (typeof error === 'string') return given.text('error', error);
  if (error instanceof Error) return describe(error);
  throw wrongType('error', 'a string or an Error', error);
}

function describe(error) {
  const text = messageOf(error);
  const name = error instanceof Error && typeof error.name === 'string' ? error.name : 'Error';
  return text === '' ? name : `${name}: ${text}`;
}

/** The bytes of a message, what is known of it, and what is said of its failure. */
function parted(options) {
  const { payload, headers, ...rest } = given.options('options', options);
  const note = {};
  for (const name of NOTE) {
    if (rest[name] !== undefined) note[name] = rest[name];
    delete rest[name];
  }
  return { payload: bytes('payload', payload), headers: bytes('headers', headers), letter: given.settings('options', rest), note: given.settings('options', note) };
}

function shownLetter({ json, payload, headers }) {
  return discreet({ ...read(json), payload: payload ?? null, headers: headers ?? null });
}

/** A message that was taken. */
function messageOfParts({ json, payload, headers, fence }) {
  return discreet({ ...read(json), payload: payload ?? null, headers, fence });
}

/** A message that was taken, to be settled once. Forgotten, it is given back. */
class TakenLetter {
  constructor(inner) {
    behind(this, { _inner: inner });
    Object.assign(this, messageOfParts(inner.parts()));
    discreet(this);
  }

  get isLost() { return this._inner.isLost; }

  async done() { await run(undefined, () => this._inner.done()); }

  async fail(error, options) {
    const [text, note] = [words(error), given.settings('options', given.only('options', options, NOTE))];
    return read(await run(undefined, () => this._inner.fail(text, note)));
  }

  async giveBack(delay = 0) {
    const span = given.duration('delay', delay);
    await run(undefined, () => this._inner.giveBack(span));
  }
}

/** The loop: each attempt is a message. What the handler throws is judged here, and settled natively. */
class HandlerShape extends Shape {
  constructor(handled, judge) {
    super();
    this.handled = handled;
    this.judge = judge;
  }

  run(call, context, detail) {
    // A loop may go on for ever: nothing is kept of messages that are settled.
    for (const id of Object.keys(call.attempts)) if (call.attempts[id]?.isEnded) delete call.attempts[id];
    const message = messageOfParts(this.handled.parts(detail.item));
    return call.fn(message, context);
  }

  value(json) { return read(json); }

  /** An error of ours is judged natively, unless the caller's judge has something to say, or fails. */
  ownParts(error) {
    try {
      return this.judged(error) === undefined ? super.ownParts(error) : undefined;
    } catch {
      return undefined;
    }
  }

  recorded(call, error) {
    const said = this.judged(error);
    if (said === undefined) return undefined;
    return Buffer.from(said === 'give-back' ? JSON.stringify(said) : given.json('what judge returned', given.only('what judge returned', said, NOTE)));
  }

  judged(error) {
    if (this.judge === undefined) return undefined;
    return atOnce('judge', 'undefined, "give-back" or an object such as { count: "final" }', this.judge(error)) ?? undefined;
  }
}

/** A redrive that was started. It goes on without this. */
class RedriveRun {
  constructor(inner) {
    behind(this, { _inner: inner });
  }

  get case() { return this._inner.case; }
  get matched() { return read(this._inner.matched); }
  async progress() { return read(await run(undefined, () => this._inner.progress())); }
  async stop() { return read(await run(undefined, () => this._inner.stop())); }

  async finished(options) {
    const { signal } = given.only('options', options, ['signal']);
    return read(await run(given.signal(signal), () => this._inner.finished()));
  }
}

class DeadLetters {
  constructor(client, name, options) {
    given.nonEmpty('name', name);
    const settings = given.options('options', options);
    const json = given.settings('options', settings);
    const inner = given.reading([], () => client.deadLetters(name, json));
    behind(this, { _inner: inner, _take: { count: settings.concurrency ?? 16, wait: settings.wait ?? '30s' } });
  }

  get name() { return this._inner.name; }

  by(actor) {
    const other = Object.create(DeadLetters.prototype);
    behind(other, { _inner: this._inner.by(given.nonEmpty('actor', actor)), _take: this._take });
    return other;
  }

  async fail(id, error, options) {
    given.atMost('fail', arguments, 3);
    const [name, text, { payload, headers, letter, note }] = [given.text('id', id), words(error), parted(options)];
    return read(await run(undefined, () => this._inner.fail(name, text, payload, headers, letter, note)));
  }

  async park(id, options) {
    given.atMost('park', arguments, 2);
    const [name, { payload, headers, letter }] = [given.text('id', id), parted(options)];
    return read(await run(undefined, () => this._inner.park(name, payload, headers, letter)));
  }

  async take(options) {
    given.atMost('take', arguments, 1);
    const { count = 1, wait = 0, signal } = given.only('options', options, ['count', 'wait', 'signal']);
    const [number, span] = [given.whole('count', count), given.duration('wait', wait)];
    const taken = await run(given.signal(signal), () => this._inner.take(number, span));
    return taken.map((letter) => new TakenLetter(letter));
  }

  /** Messages as they become due, until a shutdown, or the signal is aborted. Those that nobody asked for go back. */
  async *entries(options) {
    const { signal } = given.only('options', options, ['signal']);
    const ended = given.signal(signal);
    while (ended?.aborted !== true) {
      let letters;
      try {
        letters = await this.take({ ...this._take, signal: ended });
      } catch (error) {
        if (error?.code === 'SHUTTING_DOWN' || (ended?.aborted === true && error?.code === 'CANCELLED')) return;
        throw error;
      }
      try {
        while (letters.length > 0) yield letters.shift();
      } finally {
        await Promise.allSettled(letters.map((letter) => letter.giveBack()));
      }
    }
  }

  async run(handler, options) {
    given.atMost('run', arguments, 2);
    given.func('handler', handler);
    const { judge, signal } = given.only('options', options, ['judge', 'signal']);
    if (judge !== undefined) given.func('judge', judge);
    const handled = native.HandledMessages.make();
    return through(new HandlerShape(handled, judge), handler, given.signal(signal), () => this._inner.run(handled));
  }

  async get(id) {
    const found = await run(undefined, () => this._inner.get(given.text('id', id)));
    return found === null || found === undefined ? null : shownLetter(found);
  }

  async standing(id) { return read(await run(undefined, () => this._inner.standing(given.text('id', id)))); }

  async list(filter) {
    const said = given.settings('filter', filter);
    const { letters, cursor } = await run(undefined, () => this._inner.list(said));
    return { letters: letters.map(shownLetter), cursor: cursor ?? null };
  }

  /** All messages that match, page by page. */
  async *listAll(filter) {
    let cursor;
    do {
      const page = await this.list(cursor === undefined ? filter : { ...filter, cursor });
      yield* page.letters;
      cursor = page.cursor;
    } while (cursor !== null);
  }

  async info() { return read(await run(undefined, () => this._inner.info())); }
  async config() { return read(await run(undefined, () => this._inner.config())); }
  async groups() { return read(await run(undefined, () => this._inner.groups())); }
  async cases() { return read(await run(undefined, () => this._inner.cases())); }
  async case(number) { return read(await run(undefined, () => this._inner.case(given.whole('case', number)))); }
  async alerts() { return read(await run(undefined, () => this._inner.alerts())); }
  async audit() { return read(await run(undefined, () => this._inner.audit())); }

  async configure(change) {
    const said = given.settings('change', change);
    await run(undefined, () => this._inner.configure(said));
  }

  async diagnose(diagnosis) {
    const said = given.settings('diagnosis', diagnosis);
    return run(undefined, () => this._inner.diagnose(said));
  }

  async redrive(number, settings) {
    const [which, said] = [given.whole('case', number), given.settings('settings', settings)];
    return new RedriveRun(await run(undefined, () => this._inner.redrive(which, said)));
  }

  async dryRun(number, settings) {
    const [which, said] = [given.whole('case', number), given.settings('settings', settings)];
    return read(await run(undefined, () => this._inner.dryRun(which, said)));
  }

  async stop(number) { return read(await run(undefined, () => this._inner.stop(given.whole('case', number)))); }
  async close(number) { return run(undefined, () => this._inner.close(given.whole('case', number))); }
  async discard(number) { return run(undefined, () => this._inner.discard(given.whole('case', number))); }
  async hold(id, reason = '') { return run(undefined, () => this._inner.hold(given.text('id', id), given.text('reason', reason))); }
  async holdAggregate(aggregate, reason = '') { return run(undefined, () => this._inner.holdAggregate(given.text('aggregate', aggregate), given.text('reason', reason))); }
  async release(id, reason = '') { return run(undefined, () => this._inner.release(given.text('id', id), given.text('reason', reason))); }
  async releaseAggregate(aggregate, reason = '') { return run(undefined, () => this._inner.releaseAggregate(given.text('aggregate', aggregate), given.text('reason', reason))); }

  async purge(older, options) {
    const { state, limit } = given.only('options', options, ['state', 'limit']);
    const [span, said] = [given.duration('older', older), given.settings('options', { state })];
    return read(await run(undefined, () => this._inner.purge(span, said, limit === undefined ? undefined : given.whole('limit', limit, 1))));
  }

  async seen(alert) { return run(undefined, () => this._inner.seen(given.counter('alert', alert))); }
}

module.exports = { DeadLetters, RedriveRun, TakenLetter, made: { deadLetters: (...said) => new DeadLetters(...said) } };
