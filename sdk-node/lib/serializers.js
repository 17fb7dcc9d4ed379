'use strict';
/**
 * How results and values are written, so that others read the same: `serializer` of `idempotent`, `cached` and `versionedCached`.
 *
 * What would come back as something else is refused, never lost in silence. JSON is compact and in UTF-8, the same bytes as in every other
 * language. And what makes a request this request, which is only compared and never read back.
 */
const v8 = require('node:v8');
const { wrongType, shown, InvalidArgumentError } = require('./errors.js');
const { text } = require('./arguments.js');
const { parseExactly } = require('./exact.js');

/** Of any realm: test runners have objects of their own. */
function isPlainObject(value) {
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** `Array.prototype` is an array; that of a class which extends it is not. */
function isPlainArray(value) {
  return Array.isArray(value) && Array.isArray(Object.getPrototypeOf(value));
}

/** Generators have no constructor with a name. */
function classOf(value) {
  const names = [Object.getPrototypeOf(value)?.constructor?.name, value[Symbol.toStringTag]];
  return names.find((name) => typeof name === 'string' && name !== '') ?? 'object';
}

function refused(at, value, why) {
  const what = typeof value === 'object' && value !== null ? `a ${classOf(value)}` : shown(value);
  return new InvalidArgumentError(`${at} is ${what}, ${why}`);
}

const NOT_JSON = 'which JSON does not have: leave it out, make it text, or choose another serializer';

/** Throws if JSON would make something else of `value`. `around`: the objects it is inside of. */
function refuseOutsideOfJson(value, at, around) {
  switch (typeof value) {
    case 'string': case 'boolean': return;
    case 'number':
      if (!Number.isFinite(value)) throw refused(at, value, NOT_JSON);
      return;
    case 'object': {
      if (value === null) return;
      if (around.includes(value)) throw new InvalidArgumentError(`${at} contains itself, ${NOT_JSON}`);
      around.push(value);
      const [symbol] = Object.getOwnPropertySymbols(value).filter((key) => Object.prototype.propertyIsEnumerable.call(value, key));
      if (symbol !== undefined) throw new InvalidArgumentError(`${at} has ${String(symbol)} as a key, ${NOT_JSON}`);
      if (isPlainArray(value)) {
        for (let index = 0; index < value.length; index += 1) refuseOutsideOfJson(value[index], `${at}[${index}]`, around);
        // There are no holes, so that every key beyond the indices is one more.
        const keys = Object.keys(value);
        if (keys.length > value.length) throw new InvalidArgumentError(`${at}.${keys[value.length]} is a property of an array, ${NOT_JSON}`);
      } else if (!Array.isArray(value) && isPlainObject(value)) {
        for (const key of Object.keys(value)) refuseOutsideOfJson(value[key], `${at}.${key}`, around);
      } else {
        throw refused(at, value, NOT_JSON);
      }
      around.pop();
      return;
    }
    default: throw refused(at, value, NOT_JSON);
  }
}

/** Classes that structured clone brings back as what they were. */
const CLONED = [Map, Set, Date, RegExp, Error, ArrayBuffer, Boolean, Number, String, BigInt];

function refuseOutsideOfClone(value, at, seen) {
  if (typeof value === 'function' || typeof value === 'symbol') throw refused(at, value, 'which structured clone does not have');
  if (typeof value !== 'object' || value === null || seen.has(value)) return;
  seen.add(value);
  if (ArrayBuffer.isView(value) || CLONED.some((Class) => value instanceof Class)) {
    if (value instanceof Map) for (const [key, one] of value) [key, one].forEach((part) => refuseOutsideOfClone(part, `${at}.${String(key)}`, seen));
    if (value instanceof Set) for (const one of value) refuseOutsideOfClone(one, `${at}[]`, seen);
    return;
  }
  if (!isPlainArray(value) && !isPlainObject(value)) throw refused(at, value, 'which would come back without its class: write it yourself, with a serializer of your own');
  for (const key of Object.keys(value)) refuseOutsideOfClone(value[key], `${at}.${key}`, seen);
}

function bytesOf(name, given) {
  if (typeof given === 'string') return Buffer.from(text(name, given));
  if (!(given instanceof Uint8Array)) throw wrongType(name, 'a Uint8Array', given);
  return Buffer.from(given.buffer, given.byteOffset, given.byteLength);
}

const serializers = {
  json: {
    /** Nothing at all is `null`. */
    write(value) {
      if (value === undefined) return Buffer.from('null');
      refuseOutsideOfJson(value, 'the value', []);
      return Buffer.from(JSON.stringify(value));
    },
    /** Bytes, or the text that they are. */
    read: (bytes) => (bytes.length === 0 ? undefined : parseExactly(bytes.toString('utf8'))),
  },
  bytes: {
    write(value) {
      if (!(value instanceof Uint8Array)) throw wrongType('the value', 'a Uint8Array', value);
      return bytesOf('the value', value);
    },
    read: (bytes) => bytes,
  },
  v8: {
    write(value) {
      refuseOutsideOfClone(value, 'the value', new Set());
      return v8.serialize(value);
    },
    read: (bytes) => v8.deserialize(bytes),
  },
};

/** What `serializer` says. */
function serializerOf(said = 'json') {
  if (typeof said === 'string' && Object.hasOwn(serializers, said)) return serializers[said];
  if (typeof said === 'object' && said !== null && typeof said.serialize === 'function' && typeof said.deserialize === 'function') {
    return {
      write: (value) => bytesOf('what serialize returns', said.serialize(value)),
      read: (bytes) => said.deserialize(bytes),
    };
  }
  throw wrongType('serializer', "'json', 'bytes', 'v8', or an object with serialize and deserialize", said);
}

/** By their code points, as other languages sort. */
function byCodePoint(one, other) {
  return /[\ud800-\udfff]/.test(one + other) ? Buffer.compare(Buffer.from(one), Buffer.from(other)) : one < other ? -1 : Number(one > other);
}

/** JSON of which the order of keys says nothing. It need not be read back, so that what says how it is written (`toJSON`) is asked. */
function canonical(value, at, around) {
  const said = typeof value?.toJSON === 'function' ? value.toJSON() : value;
  switch (typeof said) {
    case 'string': case 'boolean': return JSON.stringify(said);
    case 'number':
      if (!Number.isFinite(said)) break;
      return JSON.stringify(said);
    case 'object': {
      if (said === null) return 'null';
      if (around.includes(said)) throw new InvalidArgumentError(`${at} contains itself: it must be text, bytes, or something that is JSON`);
      // They would all be alike.
      if (said instanceof Map || said instanceof Set) break;
      around.push(said);
      const text = Array.isArray(said)
        ? `[${Array.from(said, (one, index) => (one === undefined ? 'null' : canonical(one, `${at}[${index}]`, around))).join(',')}]`
        : `{${Object.keys(said).filter((key) => said[key] !== undefined).sort(byCodePoint).map((key) => `${JSON.stringify(key)}:${canonical(said[key], `${at}.${key}`, around)}`).join(',')}}`;
      around.pop();
      return text;
    }
    default:
  }
  throw wrongType(at, 'text, bytes, or something that is JSON', value);
}

/** What a request says, as bytes. */
function fingerprint(request) {
  if (request === undefined) return Buffer.alloc(0);
  if (typeof request === 'string') return Buffer.from(text('request', request));
  if (request instanceof Uint8Array) return bytesOf('request', request);
  return Buffer.from(canonical(request, 'request', []));
}

module.exports = { serializers, serializerOf, fingerprint, refuseOutsideOfJson };
