'use strict';
/**
 * Whatever a function can be called through. One class for all policies: they differ in what is behind them natively, and
 * in how they judge errors.
 *
 * The way of nearly every call is short: see quick.js. Everything else (a retry, a wait for the server, a signal) is a Call of
 * calls.js.
 */
const native = require('./native.js');
const { Call, Shape, RUN, FIRST_IS_DONE, through } = require('./calls.js');
const { Context } = require('./context.js');
const { thrown, wrongType } = require('./errors.js');
const given = require('./arguments.js');
const { inside } = require('./inside.js');
const { Deadline, briefly, followed } = require('./quick.js');
const { traceId } = require('./trace.js');
const { endTurn, join } = require('./turn.js');

/** What an error means, as the native half is told. */
const PERMANENT = -1;
const IGNORED = -2;
const RETRY = -3;

const PARTICULAR = ['signal', 'key', 'cost', 'partition', 'attemptTimeout', 'totalTimeout'];
const WRAPPED = [...PARTICULAR, 'context'];

function isErrorClass(value) {
  return typeof value === 'function' && value.prototype !== undefined && (value === Error || value.prototype instanceof Error || value.name === 'ResilError');
}

/** A function of an error, of whatever was given to say which errors are meant. */
function predicate(name, said) {
  if (isErrorClass(said)) return (error) => error instanceof said;
  if (Array.isArray(said)) {
    said.forEach((Class, at) => {
      if (!isErrorClass(Class)) throw wrongType(`${name}[${at}]`, 'a class of errors', Class);
    });
    return (error) => said.some((Class) => error instanceof Class);
  }
  return given.func(name, said);
}

/** `on`: which errors may go away. */
function judgeOf(name, said) {
  const judge = predicate(name, said);
  return (error) => {
    const meaning = judge(error);
    if (meaning === true) return RETRY;
    if (meaning === false) return PERMANENT;
    if (meaning === 'ignore') return IGNORED;
    if (typeof meaning === 'number' && meaning >= 0 && Number.isFinite(meaning)) return meaning;
    throw wrongType(`what ${name} returns`, "a boolean, a number of milliseconds, or 'ignore'", meaning);
  };
}

/** `ignore`: which errors say nothing. */
function ignoringOf(name, said) {
  if (said === undefined) return undefined;
  const ignores = predicate(name, said);
  return (error) => (ignores(error) ? IGNORED : PERMANENT);
}

/** What a fallback answers. If it fails as well, that failure says what it was to answer for. */
async function answering(instead, error, context) {
  try {
    return await instead(error, context);
  } catch (raised) {
    if (raised instanceof Error && raised !== error && raised.cause === undefined && Object.isExtensible(raised)) {
      Object.defineProperty(raised, 'cause', { value: error, configurable: true, writable: true });
    }
    throw raised;
  }
}

/** How functions run through a guard: with a context, judged by each layer. */
class GuardShape extends Shape {
  constructor(layers) {
    super();
    this.layers = layers;
    this.hasJudges = layers.some((layer) => layer.judge !== undefined);
    this._isLeased = layers.some((layer) => layer.isLeased === true);
  }

  get isLeased() { return this._isLeased; }
  isOf(client) { return this.layers.some((layer) => layer.client === client); }

  run(call, context, detail) {
    const failure = detail?.failure;
    if (detail?.held !== undefined) return inside(detail.held, () => call.fn(context));
    if (failure === undefined) return call.fn(context);
    // A fallback: the function is the layer's own, of the error as it would have been thrown.
    const error = call.failureOf(failure);
    const { instead, when } = this.layers[detail.layer];
    if (when !== undefined && !when(error)) throw error;
    return typeof instead === 'function' ? answering(instead, error, context) : instead;
  }

  classes(call, error) {
    return this.hasJudges ? this.layers.map((layer) => layer.judge?.(error) ?? PERMANENT) : [];
  }
}

/** How a guard runs functions. */
const FULLY = 0;
const PLAINLY = 1;
const BRIEFLY = 2;
const FOLLOWED = 3;

function wayOf(inner, layers) {
  const isOfClient = layers.some((layer) => layer.client !== undefined);
  if (inner.isQuick) return inner.isTimed || isOfClient ? FOLLOWED : BRIEFLY;
  return inner.interrupts || isOfClient ? FULLY : PLAINLY;
}

/** So many calls that are over are kept in the list of those to be timed before they are taken out. */
const TIMED = 64;

class Guard {
  /** Not for users: `layers` are `{judge, instead, when, client, isLeased}`, outermost first, as behind `inner`. */
  constructor(inner, layers) {
    this._inner = inner;
    this._number = inner.number;
    this._layers = layers;
    this._shape = new GuardShape(layers);
    this._way = wayOf(inner, layers);
    this._isTimed = inner.isTimed;
    // What was lent in this turn: the loan (-1: none), the leaves that are left, and calls that ended well and were not told.
    this._loan = -1;
    this._leaves = 0;
    this._ok = 0;
    this._isInTurn = false;
    // Calls that began in this turn, to be timed when it ends.
    this._timed = [];
    this._timedMost = TIMED;
  }

  call(fn, options) {
    if (options !== undefined || typeof fn !== 'function' || given.isGenerator(fn) || traceId() !== undefined) return this._callFully(fn, options);
    switch (this._way) {
      case BRIEFLY: return briefly(this, fn);
      case FOLLOWED: return followed(this, fn);
      case PLAINLY: return plainly(this, fn);
      default: return this._callFully(fn, undefined);
    }
  }

  _joinTurn() {
    if (this._isInTurn) return;
    this._isInTurn = true;
    join(this);
  }

  _forgetLoan() {
    this._loan = -1;
    this._leaves = 0;
  }

  _giveBack() {
    this._isInTurn = false;
    const loan = this._loan;
    const leaves = this._leaves;
    const ok = this._ok;
    this._forgetLoan();
    this._ok = 0;
    if (loan >= 0) native.endTurn(this._number, ok, leaves);
  }

  _setDeadline() {
    if (this._timed.length === 0) return;
    const timed = this._timed.filter((quick) => !quick.isOver);
    this._timed = [];
    this._timedMost = TIMED;
    if (timed.length > 0) new Deadline(this, timed);
  }

  /** If this call still runs when the turn ends, it is timed from there. */
  _time(quick) {
    this._joinTurn();
    if (this._timed.push(quick) < this._timedMost) return;
    this._timed = this._timed.filter((each) => !each.isOver);
    this._timedMost = Math.max(TIMED, this._timed.length * 2);
  }

  _callFully(fn, options) {
    let signal;
    let begin;
    try {
      given.func('fn', fn);
      const { signal: said, ...particular } = given.only('options', options, PARTICULAR);
      signal = given.signal(said);
      const json = Object.keys(particular).length === 0 ? undefined : given.settings('options', particular);
      begin = json === undefined ? () => native.beginCall(this._number) : () => native.beginCallWith(this._number, json);
    } catch (error) {
      return Promise.reject(error);
    }
    return through(this._shape, fn, signal, begin);
  }

  wrap(fn, options) {
    given.func('fn', fn);
    const { context: isTold, ...said } = given.only('options', options, WRAPPED);
    if (isTold !== undefined && typeof isTold !== 'boolean') throw wrongType('context', 'a boolean', isTold);
    const guard = this;
    const particular = Object.keys(said).length === 0 ? undefined : said;
    const wrapped = isTold
      ? function (...args) { return guard.call((context) => fn.apply(this, [...args, context]), particular); }
      : function (...args) { return guard.call(() => fn.apply(this, args), particular); };
    Object.defineProperty(wrapped, 'name', { value: fn.name, configurable: true });
    Object.defineProperty(wrapped, 'length', { value: fn.length, configurable: true });
    return wrapped;
  }
}

/** For guards that have to be asked each time, and often answer at once. */
async function plainly(guard, fn) {
  endTurn();
  let word;
  try {
    word = native.beginCall(guard._number);
  } catch (raised) {
    throw thrown(raised);
  }
  if ((word & 7) !== RUN) return new Call(guard._shape, fn, undefined).adopt(word);
  const context = new Context(1, undefined);
  let value;
  try {
    value = await fn(context);
  } catch (error) {
    return new Call(guard._shape, fn, undefined).goOnAfterError(word, context, error);
  }
  endTurn();
  const next = native.settleOk(word >>> 3, 1);
  return next === FIRST_IS_DONE ? value : new Call(guard._shape, fn, undefined).goOnAfterValue(word, context, value, next);
}

/** Guards around each other, outermost first; with a function last, that function through them. */
function wrap(...guards) {
  const last = guards.at(-1);
  const fn = typeof last === 'function' ? guards.pop() : undefined;
  if (guards.length === 0) throw wrongType('guards', 'at least one policy', fn === undefined ? undefined : fn);
  guards.forEach((guard, at) => {
    if (!(guard?._guard instanceof Guard)) throw wrongType(`guards[${at}]`, 'a policy, or anything else that can be called through', guard);
  });
  const all = guards.map((guard) => guard._guard);
  const around = new Composed(new Guard(native.Guard.wrap(all.map((guard) => guard._inner)), all.flatMap((guard) => guard._layers)));
  return fn === undefined ? around : around.wrap(fn);
}

/** The function is not told what is given after the options: a caller who gives it means something else. */
async function surplus(args) {
  given.atMost('call', args, 2);
}

/** Gives a class `call` and `wrap`, through what its `_guard` is. */
function guarded(Class) {
  Class.prototype.call = function (fn, options) {
    if (arguments.length > 2) return surplus(arguments);
    return this._guard.call(fn, options);
  };
  Class.prototype.wrap = function (fn, options) {
    given.atMost('wrap', arguments, 2);
    return this._guard.wrap(fn, options);
  };
  return Class;
}

/** Says what is behind an object, without showing it. */
function behind(target, fields) {
  for (const [name, value] of Object.entries(fields)) Object.defineProperty(target, name, { value, writable: true });
}

/** Guards around each other. */
class Composed {
  constructor(guard) { behind(this, { _guard: guard }); }
}
guarded(Composed);

module.exports = { Guard, Composed, guarded, behind, judgeOf, ignoringOf, predicate, wrap, PARTICULAR };
