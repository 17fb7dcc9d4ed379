'use strict';
/**
 * Whatever a function can be called through. One class for all policies: they differ in what is behind them natively, and
 * in how they judge errors.
 */
const native = require('./native.js');
const { Shape, through } = require('./calls.js');
const { atOnce, because, besides, wrongType } = require('./errors.js');
const given = require('./arguments.js');
const { inside } = require('./inside.js');

/** What an error means, as the native half gets it. */
const PERMANENT = -1;
const IGNORED = -2;
const RETRY = -3;
/** Of a value: it is none. */
const GOOD = -4;

const PARTICULAR = ['signal', 'key', 'cost', 'partition', 'attemptTimeout', 'totalTimeout', 'priority'];
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

const MEANING = "a boolean, a number of milliseconds, or 'ignore'";

/** `on`: which errors may go away. */
function judgeOf(name, said) {
  const judge = predicate(name, said);
  return (error) => {
    const meaning = atOnce(name, MEANING, judge(error));
    if (meaning === true) return RETRY;
    if (meaning === false) return PERMANENT;
    if (meaning === 'ignore') return IGNORED;
    if (typeof meaning === 'number' && meaning >= 0 && Number.isFinite(meaning)) return meaning;
    throw wrongType(`what ${name} returns`, MEANING, meaning);
  };
}

/** `onResult`: which results are failures. */
function resultJudgeOf(name, said) {
  if (said === undefined) return undefined;
  given.func(name, said);
  return (value) => {
    const meaning = atOnce(name, MEANING, said(value));
    if (meaning === true) return RETRY;
    if (meaning === false || meaning === undefined) return GOOD;
    if (meaning === 'ignore') return IGNORED;
    if (typeof meaning === 'number' && meaning >= 0 && Number.isFinite(meaning)) return meaning;
    throw wrongType(`what ${name} returns`, MEANING, meaning);
  };
}

/** `ignore`: which errors say nothing. */
function ignoringOf(name, said) {
  if (said === undefined) return undefined;
  const ignores = predicate(name, said);
  return (error) => (atOnce(name, 'a boolean', ignores(error)) ? IGNORED : PERMANENT);
}

/** What a fallback returns. If it fails as well, that failure says what it was to stand in for. */
async function substitute(instead, error, context) {
  try {
    return await instead(error, context);
  } catch (raised) {
    throw because(raised, error);
  }
}

/** Whether a fallback is for this error. */
function applies(when, error) {
  try {
    return atOnce('when', 'a boolean', when(error));
  } catch (raised) {
    throw besides('when', raised, error);
  }
}

/** How functions run through a guard: with a context, judged by each layer. */
class GuardShape extends Shape {
  constructor(layers) {
    super();
    this.layers = layers;
    this.hasJudges = layers.some((layer) => layer.judge !== undefined);
    this.judgesResults = layers.some((layer) => layer.onResult !== undefined);
    this._isLeased = layers.some((layer) => layer.isLeased === true);
  }

  get isLeased() { return this._isLeased; }

  run(call, context, detail) {
    if (detail?.held) return inside(detail.held, () => call.fn(context));
    if (!detail?.failure) return call.fn(context);
    // A fallback: the function is the layer's own, of the error as it would have been thrown.
    const error = call.failureOf(detail.failure);
    const { instead, when } = this.layers[detail.layer];
    if (when !== undefined && !applies(when, error)) throw error;
    return typeof instead === 'function' ? substitute(instead, error, context) : instead;
  }

  unfit(call, value) {
    return this.judgesResults ? this.layers.map((layer) => layer.onResult?.(value) ?? GOOD) : undefined;
  }

  classes(call, error) {
    return this.hasJudges ? this.layers.map((layer) => layer.judge?.(error) ?? PERMANENT) : [];
  }
}

class Guard {
  /** Not for users: `layers` are `{judge, instead, when, isLeased}`, outermost first, as behind `inner`. */
  constructor(inner, layers) {
    this._inner = inner;
    this._layers = layers;
    this._shape = new GuardShape(layers);
    const { number } = inner;
    this._number = number;
    this._begin = () => native.beginCall(number);
  }

  call(fn, options) {
    let signal;
    let begin = this._begin;
    try {
      given.func('fn', fn);
      if (options !== undefined) {
        const { signal: own, ...settings } = given.only('options', options, PARTICULAR);
        signal = given.signal(own);
        const json = given.settings('options', settings);
        if (json !== '{}') begin = () => native.beginCall(this._number, json);
      }
    } catch (error) {
      return Promise.reject(error);
    }
    return through(this._shape, fn, signal, begin);
  }

  wrap(fn, options) {
    given.func('fn', fn);
    const { context: hasContext, ...said } = given.only('options', options, WRAPPED);
    if (hasContext !== undefined && typeof hasContext !== 'boolean') throw wrongType('context', 'a boolean', hasContext);
    const guard = this;
    const particular = Object.keys(said).length === 0 ? undefined : said;
    const wrapped = hasContext
      ? function (...args) { return guard.call((context) => fn.apply(this, [...args, context]), particular); }
      : function (...args) { return guard.call(() => fn.apply(this, args), particular); };
    Object.defineProperty(wrapped, 'name', { value: fn.name, configurable: true });
    Object.defineProperty(wrapped, 'length', { value: fn.length, configurable: true });
    return wrapped;
  }
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

/** The function does not get arguments after the options: a caller that gives some means something else. */
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

module.exports = { Guard, Composed, guarded, behind, judgeOf, resultJudgeOf, ignoringOf, predicate, wrap, PARTICULAR };
