'use strict';
/**
 * Work that is done once: its result, or the error that is final, is recorded for every duplicate.
 */
const { atOnce, besides, messageOf, thrown, InternalError, ResilError, ResultUnrecordedError } = require('./errors.js');
const given = require('./arguments.js');
const { Shape, run, through } = require('./calls.js');
const { behind } = require('./guard.js');
const { parseExactly, InexactNumber } = require('./exact.js');
const { fingerprint, refuseOutsideOfJson, serializerOf, serializers } = require('./serializers.js');

/** What is recorded where a result could not be. The same in every language, and read natively. */
const UNRECORDED = { name: 'ResultUnrecorded', code: 'RESULT_UNRECORDED' };

const NOTHING = Symbol('nothing');

/** One run, whose value is recorded, and whose final errors are. */
class RunShape extends Shape {
  /** `judge`: what errors mean to the policy around it. */
  constructor({ serializer, remember }, judge) {
    super();
    this.serializer = serializer;
    this.remember = remember;
    this.judge = judge;
    this.own = undefined;
    // What says that the result could not be recorded. Not `undefined`, which may be thrown, too.
    this.unrecorded = NOTHING;
  }

  get isLeased() { return true; }

  /** The work is done: if its result cannot be written, every caller gets that error, and none does it again. */
  bytes(call, value) {
    try {
      this.own = value;
      return this.serializer.write(value);
    } catch (raised) {
      throw this.unrecorded = unrecorded(thrown(raised), value);
    }
  }

  ownParts(error) { return error === this.unrecorded ? undefined : super.ownParts(error); }

  isFinal(error) {
    if (error === this.unrecorded) return true;
    return this.remember !== undefined && atOnce('remember.isFinal', 'a boolean', this.remember.isFinal(error)) === true;
  }

  isCutShort(error) { return isCutShort(error); }

  /** What is final is not tried again. */
  classes(call, error) { return this.judge === undefined || this.isFinal(error) ? [] : [this.judge(error)]; }

  recorded(call, error) {
    if (error === this.unrecorded) return json({ ...UNRECORDED, message: messageOf(error.cause) });
    if (!this.isFinal(error)) return undefined;
    const { write } = this.remember;
    return json(write === undefined ? parts(error) : atOnce('remember.write', 'plain JSON', this.remember.write(error)));
  }

  revive(call, recorded) {
    const said = readBack({ read: (bytes) => parseExactly(bytes.toString('utf8')) }, recorded, ResultUnrecordedError);
    if (this.remember?.read === undefined) return revived(said);
    try {
      return this.remember.read(said);
    } catch (raised) {
      return besides('remember.read', raised, revived(said));
    }
  }
}

const CUT_SHORT = ['CANCELLED', 'TIMEOUT', 'LOCK_LOST', 'SHUTTING_DOWN'];
/** What the platform throws where its own signals are aborted. */
const ABORTED = ['AbortError', 'TimeoutError'];

/** A timeout, a cancellation, the loss of a lock it worked under; also as the last of several attempts. */
function isCutShort(error) {
  if (error instanceof ResilError) return CUT_SHORT.includes(error.code) || (error.code === 'RETRY_EXHAUSTED' && isCutShort(error.cause));
  try {
    return error instanceof Error && ABORTED.includes(error.name);
  } catch {
    return false;
  }
}

function json(value) {
  return Buffer.from(JSON.stringify(value) ?? 'null');
}

/** For the caller that did the work, and has its result. */
function unrecorded(cause, result) {
  const error = new ResultUnrecordedError(`the work is done, and its result could not be recorded: ${messageOf(cause)}`, { cause });
  error.result = result;
  return error;
}

/** What is recorded of an error: its name, its words, and of its properties those that JSON has. */
function parts(error) {
  const message = messageOf(error);
  const name = typeof error?.name === 'string' ? error.name : 'Error';
  const properties = {};
  for (const [key, value] of Object.entries(typeof error === 'object' && error !== null ? error : {})) {
    if (key === 'name' || key === 'message' || (key === 'code' && typeof value === 'string')) continue;
    try {
      refuseOutsideOfJson(value, key, []);
      properties[key] = value;
    } catch {
      // A socket, a request: of one process.
    }
  }
  const code = typeof error?.code === 'string' ? { code: error.code } : {};
  return { name, message, args: [message], ...code, properties };
}

/** The error of its parts, as this or another language recorded them. */
function revived(said) {
  const message = typeof said?.message === 'string' ? said.message : JSON.stringify(said);
  const error = new Error(message);
  const name = said?.name ?? said?.error;
  if (typeof name === 'string') Object.defineProperty(error, 'name', { value: name, configurable: true, writable: true });
  if (typeof said?.code === 'string') error.code = said.code;
  if (Array.isArray(said?.args) && !(said.args.length === 1 && said.args[0] === message)) error.args = said.args;
  for (const [key, value] of Object.entries(said?.properties ?? {})) {
    if (!['name', 'message', 'stack', '__proto__'].includes(key)) error[key] = value;
  }
  return error;
}

/** The outcome of a run, with the value that the runner itself has. `stored`: an Idempotent. */
async function outcomeOf(stored, fn, signal, begin, judge) {
  const shape = new RunShape(stored._results, judge);
  const { value, replayed, attempt, ageMs, recorded } = await through(shape, fn, signal, begin);
  // To JSON nothing is `null`, for the runner as for everybody else.
  if (!replayed) return { value: shape.serializer === serializers.json ? shape.own ?? null : shape.own, replayed, attempt, ageMs, recorded };
  if (value === undefined || value === null) throw new ResultUnrecordedError('the work is done, and its result was not recorded: it was too large for the server');
  return { value: readBack(shape.serializer, value, ResultUnrecordedError), replayed, attempt, ageMs, recorded };
}

/** What was written. `Inexact`: the class of the error if it has a number that JavaScript does not. */
function readBack(serializer, bytes, Inexact = InternalError) {
  try {
    return serializer.read(bytes);
  } catch (cause) {
    if (cause instanceof InexactNumber) throw new Inexact(`what another language wrote cannot be read here: ${cause.message}`, { cause });
    throw new InternalError(`what was recorded cannot be read by this serializer: ${messageOf(cause)}`, { cause });
  }
}

class Idempotent {
  constructor(client, name, options) {
    given.text('name', name);
    const { serializer, remember, ...settings } = given.options('options', options);
    if (remember !== undefined) {
      const { isFinal, write, read } = given.only('remember', remember, ['isFinal', 'write', 'read']);
      given.func('remember.isFinal', isFinal);
      if (write !== undefined) given.func('remember.write', write);
      if (read !== undefined) given.func('remember.read', read);
    }
    const results = { serializer: serializerOf(serializer), remember };
    const json = given.settings('options', settings);
    const inner = given.reading(['serializer', 'remember'], () => client.idempotent(name, json));
    behind(this, { _inner: inner, _name: name, _results: results });
  }

  get name() { return this._name; }

  async run(key, request, work, options) {
    given.atMost('run', arguments, 4);
    given.nonEmpty('key', key);
    const print = fingerprint(request);
    given.func('work', work);
    const { signal } = given.only('options', options, ['signal']);
    return outcomeOf(this, work, given.signal(signal), () => this._inner.run(key, print, this._results.remember !== undefined));
  }

  async once(key, ttl, token) {
    given.atMost('once', arguments, 3);
    given.nonEmpty('key', key);
    const span = given.duration('ttl', ttl);
    return run(undefined, () => this._inner.once(key, span, given.optionalText('token', token)));
  }

  async get(key) {
    given.atMost('get', arguments, 1);
    given.nonEmpty('key', key);
    const { state, attempt, remainingMs, result, isError, ageMs } = await run(undefined, () => this._inner.get(key));
    switch (state) {
      case 'running': return { state, attempt, remainingMs };
      case 'done': return { state, result: result ?? null, isError, ageMs };
      case 'held': return { state, attempt };
      default: return { state };
    }
  }
}

module.exports = { Idempotent, fingerprint, outcomeOf, readBack, made: { idempotent: (...said) => new Idempotent(...said) } };
