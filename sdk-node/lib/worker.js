'use strict';
/**
 * Messages of a queue, handled by a function: workers, publishers, and the texts of what belongs in a database.
 */
const native = require('./native.js');
const { ask, atOnce, wrongType } = require('./errors.js');
const given = require('./arguments.js');
const { Shape, run, through } = require('./calls.js');
const { behind } = require('./guard.js');
const { discreet } = require('./inspected.js');

const VERDICT = ['verdict', 'after', 'failureClass'];
/** Where a message is among those that are handled: for what is sent because of it. */
const HANDLED = Symbol('handled');
/** How many causes of an error are looked at. */
const CAUSES_MAX = 8;
/** An SQLSTATE: a class that begins with a digit, or a few that begin with a letter. */
const SQL_STATE = /^[0-9A-Z]{5}$/;

/** Thrown by a handler that knows what is to become of its message. */
class WorkError extends Error {
  constructor(message, verdict = 'retry', options = {}) {
    const { after, failureClass, cause } = given.only('options', options, ['after', 'failureClass', 'cause']);
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'WorkError';
    this.verdict = given.text('verdict', verdict);
    this.after = after;
    this.failureClass = failureClass;
  }
}

/** Brings messages of older forms up to date when they are read; nothing is written back. */
class Upcasters {
  #steps = [];

  step(kind, fromVersion, upcast) {
    given.atMost('step', arguments, 3);
    given.nonEmpty('kind', kind);
    if (!Number.isInteger(fromVersion) || fromVersion < 0 || fromVersion > 4294967294) {
      throw wrongType('fromVersion', 'an integer from 0 to 4294967294', fromVersion);
    }
    given.func('upcast', upcast);
    this.#steps.push([kind, fromVersion, upcast]);
    return this;
  }

  /** The kinds and versions, as JSON: what is checked natively. */
  static declared(upcasters) { return JSON.stringify(upcasters.#steps.map(([kind, from]) => [kind, from])); }

  /** A payload in the newest form, by the steps from one version to before another. */
  static apply(upcasters, kind, [from, to], payload) {
    let current = payload;
    for (let version = from; version < to; version += 1) {
      const [, , upcast] = upcasters.#steps.find(([of, at]) => of === kind && at === version) ?? [];
      if (upcast !== undefined) current = readable(kind, version, upcast(current));
    }
    return current;
  }
}

function readable(kind, version, said) {
  if (typeof said === 'string') return Buffer.from(said);
  if (said instanceof Uint8Array) return Buffer.from(said.buffer, said.byteOffset, said.byteLength);
  throw new WorkError(`the upcaster of ${kind} from version ${version} returned neither a string nor a Uint8Array`, 'permanent');
}

/** What handlers threw that the worker had cut off. An AbortError of a handler's own, from a timeout of its own, is a failure like any other. */
const CUT_OFF = new WeakSet();

/** The ids of messages whose handlers threw, by what they threw. */
const THROWN_FOR = new WeakMap();

/** A message that a handler dropped is a warning of the process, without the handler's words: those are for the hook `onDrop`. */
function warnOfDrop(queue, error) {
  const id = typeof error === 'object' && error !== null ? THROWN_FOR.get(error) : undefined;
  process.emitWarning(`${queue}: the message ${id ?? ''} was dropped`, { type: 'ResilWarning', code: 'RESIL_DROPPED' });
}

/** What is known of an error, for the native half to judge. */
function knownOf(error) {
  if (typeof error !== 'object' || error === null) return {};
  const known = {};
  const { code } = error;
  const status = error.response?.status ?? error.response?.statusCode ?? error.statusCode ?? error.status;
  if (Number.isInteger(status) && status >= 100 && status <= 599) known.status = status;
  if (typeof code === 'string' && /^E[A-Z_]+$/.test(code)) known.errno = code;
  else if (typeof code === 'string' && SQL_STATE.test(code)) known.sqlState = code;
  if (error instanceof SyntaxError) known.isUnreadable = true;
  if (CUT_OFF.has(error)) known.isCancelled = true;
  return known;
}

/** The error, and those that an AggregateError is made of. */
function parts(error) {
  const inside = error instanceof AggregateError && Array.isArray(error.errors) ? error.errors.slice(0, CAUSES_MAX) : [];
  return [error, ...inside];
}

/** Of the error, or of the first of its parts or causes that says something. */
function facts(error) {
  return parts(error).map(ofCauses).find((known) => Object.keys(known).length > 0) ?? {};
}

function ofCauses(error) {
  let current = error;
  for (let depth = 0; depth < CAUSES_MAX && current !== undefined && current !== null; depth += 1) {
    const known = knownOf(current);
    if (Object.keys(known).length > 0) return known;
    current = current.cause;
  }
  return {};
}

/** A verdict by its name, or with more. */
function verdictJson(name, said) {
  const all = typeof said === 'string' ? { verdict: said } : given.only(name, said, VERDICT);
  const present = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
  return `{"verdict":${given.json(name, present)}}`;
}

function bytes(name, said) {
  if (typeof said === 'string') return Buffer.from(given.text(name, said));
  if (said instanceof Uint8Array) return Buffer.from(said.buffer, said.byteOffset, said.byteLength);
  throw wrongType(name, 'a string or a Uint8Array', said);
}

/** What a handler throws because its signal was aborted is no failure of its message. */
async function untilCutOff(handler, message, context) {
  try {
    return await handler(message, context);
  } catch (error) {
    if (typeof error === 'object' && error !== null) THROWN_FOR.set(error, message.id);
    if (error instanceof WorkError || !context.signal.aborted) throw error;
    const cutOff = Object.assign(new Error('the handler was cut off', { cause: error }), { name: 'AbortError' });
    CUT_OFF.add(cutOff);
    throw cutOff;
  }
}

/** The loop: each attempt is a message. What the handler throws is described here, and judged natively. */
class WorkShape extends Shape {
  constructor(queue, handled, judge, upcasters) {
    super();
    this.queue = queue;
    this.handled = handled;
    this.judge = judge;
    this.upcasters = upcasters;
  }

  run(call, context, detail) {
    // A worker may go on for ever: nothing is kept of messages that are settled.
    for (const id of Object.keys(call.attempts)) if (call.attempts[id]?.isEnded) delete call.attempts[id];
    const { json, payload } = this.handled.parts(detail.item);
    const { steps, ...known } = JSON.parse(json);
    const message = discreet({ ...known, payload });
    Object.defineProperty(message, 'signal', { get: () => context.signal });
    Object.defineProperty(message, 'timeLeftMs', { get: () => this.handled.timeLeftMs(detail.item) });
    Object.defineProperty(message, HANDLED, { value: { handled: this.handled, number: detail.item } });
    const handler = (...said) => {
      message.payload = Upcasters.apply(this.upcasters, message.kind, steps, payload);
      return call.fn(...said);
    };
    return untilCutOff(handler, message, context);
  }

  value(json) { return JSON.parse(json); }

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
    const own = parts(error).find((part) => part instanceof WorkError);
    const word = said ?? own;
    if ((word?.verdict ?? word) === 'drop') warnOfDrop(this.queue, error);
    if (said !== undefined) return Buffer.from(verdictJson('what judge returned', said));
    if (own !== undefined) {
      const { verdict, after, failureClass } = own;
      return Buffer.from(verdictJson('a WorkError', { verdict, after, failureClass }));
    }
    return Buffer.from(JSON.stringify(facts(error)));
  }

  judged(error) {
    if (this.judge === undefined) return undefined;
    return atOnce('judge', 'undefined, a verdict such as "permanent", or an object', this.judge(error)) ?? undefined;
  }
}

function dated(health) {
  return health?.since === undefined ? health : { ...health, since: new Date(health.since) };
}

/** Handles the messages of one queue. */
class Worker {
  constructor(client, name, options) {
    given.nonEmpty('name', name);
    const { source, upcasters = new Upcasters(), ...settings } = given.options('options', options);
    if (!(upcasters instanceof Upcasters)) throw wrongType('upcasters', 'Upcasters', upcasters);
    const json = given.settings('options', settings);
    const from = source === undefined || source === null ? undefined : given.json('source', given.options('source', source));
    const steps = Upcasters.declared(upcasters);
    behind(this, { _inner: given.reading(['source', 'upcasters'], () => client.worker(name, from, json, steps)), _upcasters: upcasters });
  }

  get name() { return this._inner.name; }

  async run(handler, options) {
    given.atMost('run', arguments, 2);
    given.func('handler', handler);
    const { judge, signal } = given.only('options', options, ['judge', 'signal']);
    if (judge !== undefined) given.func('judge', judge);
    const stop = given.signal(signal);
    if (stop?.aborted === true) this.stop();
    const stopped = () => this.stop();
    stop?.addEventListener('abort', stopped, { once: true });
    try {
      const handled = native.HandledWork.make();
      const shape = new WorkShape(this.name, handled, judge, this._upcasters);
      return await through(shape, handler, undefined, () => this._inner.run(handled));
    } finally {
      stop?.removeEventListener('abort', stopped);
    }
  }

  stop() { this._inner.stop(); }

  health() {
    const health = JSON.parse(ask(() => this._inner.health()));
    return health.source === undefined ? health : { ...health, source: dated(health.source) };
  }
}

/** What is said of a message that is sent: native arguments. */
function outgoing(payload, options) {
  const { headers = {}, causedBy, ...how } = given.options('options', options);
  const cause = causedBy === undefined ? undefined : causedBy?.[HANDLED];
  if (causedBy !== undefined && cause === undefined) throw wrongType('causedBy', 'a message of a worker', causedBy);
  for (const [name, text] of Object.entries(given.options('headers', headers))) given.text(`headers.${name}`, text);
  return [bytes('payload', payload), given.settings('options', how), JSON.stringify(headers), cause?.handled, cause?.number];
}

/** Sends messages to a queue of RabbitMQ, or to a stream. */
class Publisher {
  constructor(client, to) {
    const json = given.json('to', given.options('to', to));
    behind(this, { _inner: ask(() => client.publisher(json)) });
  }

  async publish(payload, options) {
    given.atMost('publish', arguments, 2);
    const said = outgoing(payload, options);
    return run(undefined, () => this._inner.publish(...said));
  }

  health() { return dated(JSON.parse(ask(() => this._inner.health()))); }

  async close() { await run(undefined, () => this._inner.close()); }
}

/** An outbox table: what makes it, and what adds a message in a transaction of yours. */
class Outbox {
  constructor(table) {
    const name = given.optionalText('table', table);
    behind(this, { _inner: ask(() => native.Outbox.make(name)) });
  }

  migration() { return this._inner.migration(); }
  insert() { return this._inner.insert(); }

  row(payload, options) {
    const said = outgoing(payload, options);
    const { id, kind, aggregate, schema, headers, payload: body } = ask(() => this._inner.row(...said));
    return [id, kind ?? null, aggregate ?? null, schema ?? null, headers ?? null, body];
  }
}

/** Events whose effect happens once: the texts of a table that says which did. */
class ProcessedEvents {
  static migration() { return native.processedEvents()[0]; }
  static insert() { return native.processedEvents()[1]; }
}

const publisher = (...said) => new Publisher(...said);
publisher.most = 1;

module.exports = { Outbox, ProcessedEvents, Publisher, Upcasters, WorkError, Worker, made: { publisher, worker: (...said) => new Worker(...said) } };
