'use strict';
/**
 * The one family of errors: a class for each code, made of the parts that the native half sends.
 *
 * Whatever Resil says is an instance of ResilError, also of another copy of this package: a mark decides, not the class. What
 * is wrong with arguments is a TypeError or a RangeError as well.
 */
const table = require('./error_table.js');

const MARK = Symbol.for('resil.error');

/** What is known of each code. */
const ROWS = new Map(table.map((row) => [row.code, row]));

function describe(error, code, parts) {
  const row = ROWS.get(code);
  const define = (name, value) => Object.defineProperty(error, name, { value, enumerable: value !== undefined, configurable: true, writable: true });
  define('code', code);
  define('retryable', row.retryable);
  define('retryAfterMs', parts.retryAfterMs);
  define('resource', parts.resource);
  if (parts.field !== undefined) define('field', parts.field);
  if (parts.attempts !== undefined) define('attempts', parts.attempts);
  if (parts.afterMs !== undefined) define('afterMs', parts.afterMs);
  if (parts.reason !== undefined) define('reason', parts.reason);
  Object.defineProperty(error, 'httpStatus', { value: row.httpStatus, configurable: true });
}

/** Whatever was thrown: a proxy, or an object whose properties throw, is none of ours. */
function isMarked(error) {
  try {
    return typeof error === 'object' && error !== null && error[MARK] === true;
  } catch {
    return false;
  }
}

class ResilError extends Error {
  constructor(message, parts = {}) {
    super(message, 'cause' in parts ? { cause: parts.cause } : undefined);
    describe(this, parts.code ?? new.target.CODE ?? 'INTERNAL', parts);
  }

  static [Symbol.hasInstance](error) {
    return this === ResilError ? isMarked(error) : Function.prototype[Symbol.hasInstance].call(this, error);
  }
}

const classes = { ResilError };
const byCode = new Map();

// Wrong arguments are what the language calls them, too: such a row has a base.
for (const { code, name, base } of table) {
  const Class = base === undefined
    ? { [name]: class extends ResilError {} }[name]
    : { [name]: class extends base {
      constructor(message, parts = {}) {
        super(message, 'cause' in parts ? { cause: parts.cause } : undefined);
        describe(this, code, parts);
      }
    } }[name];
  Object.defineProperty(Class, 'CODE', { value: code });
  Object.defineProperty(Class.prototype, 'name', { value: name, configurable: true, writable: true });
  Object.defineProperty(Class.prototype, MARK, { value: true });
  classes[name] = Class;
  byCode.set(code, Class);
}
Object.defineProperty(ResilError.prototype, MARK, { value: true });
Object.defineProperty(ResilError.prototype, 'name', { value: 'ResilError', configurable: true, writable: true });

/** The error of its parts. */
function made(parts, more) {
  const Class = byCode.get(parts.code) ?? classes.InternalError;
  return new Class(parts.message, more === undefined ? parts : { ...parts, ...more });
}

/** What the native half throws at once are parts, which are no error yet. */
function thrown(raised) {
  try {
    return typeof raised === 'object' && raised !== null && !(raised instanceof Error) && typeof raised.code === 'string' ? made(raised) : raised;
  } catch {
    // Of the user's making: a proxy, say.
    return raised;
  }
}

/** Runs something of the native half; what it throws is an error of the family. */
function ask(run) {
  try {
    return run();
  } catch (raised) {
    throw thrown(raised);
  }
}

function wrongType(name, expected, given) {
  return new classes.InvalidArgumentError(`${name} must be ${expected}, got ${shown(given)}`);
}

function shown(given) {
  if (given === null) return 'null';
  switch (typeof given) {
    case 'string': return given.length > 40 ? 'a long text' : JSON.stringify(given);
    case 'number': case 'boolean': case 'undefined': return String(given);
    case 'bigint': return `${given}n`;
    case 'function': return 'a function';
    case 'symbol': return 'a symbol';
    default: return isArray(given) ? 'an array' : 'an object';
  }
}

function isArray(given) {
  try {
    return Array.isArray(given);
  } catch {
    return false;
  }
}

/** An error's words; never more of it. */
function messageOf(error) {
  try {
    return String(error instanceof Error ? error.message : error);
  } catch {
    return 'an error without words';
  }
}

/** What was raised because of `error` has it as its cause, if it is an error without one and can be changed. */
function because(raised, error) {
  try {
    if (raised instanceof Error && raised !== error && raised.cause === undefined && Object.isExtensible(raised)) {
      Object.defineProperty(raised, 'cause', { value: error, configurable: true, writable: true });
    }
  } catch {
    // An object whose properties throw.
  }
  return raised;
}

/** What a function of the user threw while it judged `error`, which is the cause; if that is no error, one is made that describes it. */
function besides(name, raised, error) {
  return because(asError(name, raised), error);
}

/** As an error: what is thrown need not be one. */
function asError(name, raised) {
  try {
    if (raised instanceof Error) return raised;
  } catch {
    // A proxy.
  }
  return Object.assign(new Error(`${name} threw ${thrownText(raised)}`), { thrown: raised });
}

function thrownText(raised) {
  try {
    return raised instanceof Error ? messageOf(raised) : shown(raised);
  } catch {
    return 'an object';
  }
}

/**
 * What a function of the user returned that is asked without waiting. An async function replies with a promise, which would count as
 * true; that it may reject is nobody else's matter.
 */
function atOnce(name, expected, returned) {
  if (typeof returned === 'object' && returned !== null && typeof returned.then === 'function') {
    Promise.resolve(returned).catch(() => {});
    throw new classes.InvalidArgumentError(`what ${name} returns must be ${expected}, got a promise: it is asked without waiting`);
  }
  return returned;
}

/** Why the signal of what was let go of, or of a call under it that is over, is aborted. */
function released() {
  return new classes.CancelledError('what this worked under was released', { code: 'CANCELLED' });
}

/** What the native half has to know of an error of ours. */
function ownParts(error) {
  if (!(error instanceof ResilError)) return undefined;
  return { code: error.code, message: messageOf(error), name: error.resource, retryAfterMs: error.retryAfterMs };
}

module.exports = { ...classes, asError, atOnce, because, besides, made, messageOf, ownParts, released, thrown, ask, wrongType, shown, classes };
