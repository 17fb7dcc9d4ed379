'use strict';
/**
 * Arguments on their way in: what is of the wrong kind is refused here by its name; what is out of bounds is refused by
 * the SDK's own settings, which get it as JSON.
 */
const { made, thrown, wrongType, shown, InvalidArgumentError } = require('./errors.js');

/** Deeper than any settings are. */
const DEPTH_MAX = 16;
const U32_MAX = 0xffff_ffff;
const U64_MAX = 0xffff_ffff_ffff_ffffn;

/** Half of a pair: UTF-8 has no such character, so that different texts would become the same. */
const isWellFormed = String.prototype.isWellFormed === undefined
  ? (given) => !/\p{Surrogate}/u.test(given)
  : (given) => given.isWellFormed();

function text(name, given) {
  if (typeof given !== 'string') throw wrongType(name, 'a string', given);
  if (!isWellFormed(given)) throw wrongType(name, 'well-formed text, without half of a surrogate pair', given);
  return given;
}

function nonEmpty(name, given) {
  if (text(name, given) === '') throw wrongType(name, 'a string that is not empty', given);
  return given;
}

function optionalText(name, given) {
  return given === undefined || given === null ? undefined : text(name, given);
}

/** `GeneratorFunction` and `AsyncGeneratorFunction`: what they return has done nothing yet, so that nothing of it would be protected. */
const GENERATORS = ['GeneratorFunction', 'AsyncGeneratorFunction'];

function isGenerator(given) {
  return GENERATORS.includes(given[Symbol.toStringTag]);
}

function func(name, given) {
  if (typeof given !== 'function') throw wrongType(name, 'a function', given);
  if (isGenerator(given)) {
    throw new InvalidArgumentError(`${name} must be a function that does its work when it is called, got a generator function: give a function that reads it to its end`);
  }
  return given;
}

/** Refuses arguments that nobody would look at. */
function atMost(name, args, most) {
  if (args.length > most) throw new InvalidArgumentError(`${name} takes ${most} ${most === 1 ? 'argument' : 'arguments'}, got ${args.length}; the last is ${shown(args[args.length - 1])}`);
}

/** A whole number from `least` on, as the native half takes it. */
function whole(name, given, least = 0) {
  if (typeof given !== 'number' || !Number.isInteger(given) || given < least || given > U32_MAX) {
    throw wrongType(name, `a whole number from ${least} to ${U32_MAX}`, given);
  }
  return given;
}

/** A whole number; whether it is in bounds is said natively. */
function integer(name, given) {
  if (!Number.isSafeInteger(given)) throw wrongType(name, 'a whole number', given);
  return given;
}

/** A number that may pass 2^53. */
function counter(name, given) {
  const number = typeof given === 'number' && Number.isSafeInteger(given) ? BigInt(given) : given;
  if (typeof number !== 'bigint' || number < 0n || number > U64_MAX) throw wrongType(name, 'a whole number, or a bigint, from 0 to 2^64 - 1', given);
  return number;
}

/** A number that is one. */
function finite(name, given) {
  if (typeof given !== 'number' || !Number.isFinite(given)) throw wrongType(name, 'a finite number', given);
  return given;
}

function options(name, given) {
  if (given === undefined) return {};
  if (typeof given !== 'object' || given === null || Array.isArray(given)) throw wrongType(name, 'an object', given);
  // What is given by mistake in its place, and has no field that anybody would look at.
  if (given instanceof AbortSignal) throw new InvalidArgumentError(`${name} must be an object such as { signal }, got the signal itself`);
  if (given instanceof Map || given instanceof Set || ArrayBuffer.isView(given)) throw wrongType(name, 'a plain object', given);
  return given;
}

/** Refuses what nobody would look at. */
function only(name, given, known) {
  const all = options(name, given);
  for (const key of Object.keys(all)) {
    if (!known.includes(key)) throw wrongType(`${name}.${key}`, `one of ${known.join(', ')}`, all[key]);
  }
  return all;
}

function signal(given) {
  if (given === undefined || given === null) return undefined;
  if (typeof given !== 'object' || typeof given.aborted !== 'boolean' || typeof given.addEventListener !== 'function') {
    throw wrongType('signal', 'an AbortSignal', given);
  }
  return given;
}

/** Refuses what JSON would change. */
function ofSettings(name, given) {
  if (typeof given === 'string') text(name, given);
  if (typeof given === 'number' && !Number.isFinite(given)) throw wrongType(name, 'a finite number', given);
  if (!['string', 'boolean', 'bigint', 'number'].includes(typeof given)) throw wrongType(name, 'a plain value', given);
}

function isPlain(given) {
  const prototype = Object.getPrototypeOf(given);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** JSON. Unlike JSON.stringify it loses nothing: what cannot be written is refused by its name. `check` refuses single values. */
function json(name, given, check = ofSettings, depth = 0) {
  if (given === null) return 'null';
  if (typeof given !== 'object') {
    check(name, given);
    return typeof given === 'bigint' ? given.toString() : JSON.stringify(given);
  }
  if (depth > DEPTH_MAX) throw new InvalidArgumentError(`${name} is nested too deeply`);
  if (Array.isArray(given)) return `[${given.map((item, at) => json(`${name}[${at}]`, item, check, depth + 1)).join(',')}]`;
  if (!isPlain(given)) throw wrongType(name, 'a plain object', given);
  const fields = Object.entries(given).filter(([, value]) => value !== undefined);
  return `{${fields.map(([key, value]) => `${JSON.stringify(key)}:${json(name === '' ? key : `${name}.${key}`, value, check, depth + 1)}`).join(',')}}`;
}

/** Settings of an object. */
function settings(name, given) {
  const all = options(name, given);
  if (!isPlain(all)) throw wrongType(name, 'a plain object', given);
  return json('', all);
}

/**
 * Runs what reads settings natively. `own` are the names that are looked at here: for an unknown name, the error lists all
 * that are known.
 */
function reading(own, run) {
  try {
    return run();
  } catch (raised) {
    throw knowing(own, raised);
  }
}

const KNOWN = ' is not known; known: ';

function knowing(own, raised) {
  const error = thrown(raised);
  const [field, known] = error?.code === 'INVALID_POLICY' ? error.message.split(KNOWN) : [];
  // Not of a part of the settings, which has none of these names.
  if (known === undefined || field.includes('.')) return error;
  const all = [...new Set([...own, ...known.split(', ')])].filter((one) => one !== 'name' || own.includes('name'));
  return made({ code: error.code, message: `${field}${KNOWN}${all.join(', ')}`, field });
}

/** The JSON of a duration. */
function duration(name, given) {
  if (typeof given !== 'number' && typeof given !== 'string') throw wrongType(name, 'a number of milliseconds, or text such as "250ms"', given);
  return json(name, given);
}

function optionalDuration(name, given) {
  return given === undefined || given === null ? undefined : duration(name, given);
}

module.exports = { atMost, isGenerator, isWellFormed, knowing, reading, finite, text, nonEmpty, optionalText, func, integer, whole, counter, options, only, signal, json, settings, duration, optionalDuration };
