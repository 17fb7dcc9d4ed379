'use strict';
/**
 * Results that are stored: of idempotent work here, of loads in cached.js. As JSON, compact and in UTF-8, so that every language reads the
 * same bytes; or as bytes.
 */
const native = require('./native.js');
const { ask, messageOf, wrongType } = require('./errors.js');
const given = require('./arguments.js');
const { Shape, ours, through } = require('./calls.js');
const { behind } = require('./guard.js');

const codecs = {
  json: {
    write(value) {
      const text = JSON.stringify(value);
      return text === undefined ? undefined : Buffer.from(text);
    },
    // Nothing stands for a result that could not be written.
    read: (bytes) => (bytes.length === 0 ? undefined : JSON.parse(bytes.toString('utf8'))),
  },
  bytes: {
    write(value) {
      if (value === undefined) return undefined;
      if (!(value instanceof Uint8Array)) throw wrongType('the value', 'a Uint8Array', value);
      return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    },
    read: (bytes) => bytes,
  },
};

function codecOf(said = 'json') {
  if (typeof said !== 'string' || !Object.hasOwn(codecs, said)) throw wrongType('codec', "'json' or 'bytes'", said);
  return codecs[said];
}

/** What a request says, as bytes. */
function fingerprint(request) {
  if (request === undefined) return Buffer.alloc(0);
  if (typeof request === 'string') return Buffer.from(request);
  if (request instanceof Uint8Array) return Buffer.from(request.buffer, request.byteOffset, request.byteLength);
  let text;
  try {
    text = JSON.stringify(request);
  } catch {
    text = undefined;
  }
  if (text === undefined) throw wrongType('request', 'text, bytes, or something that is JSON', request);
  return Buffer.from(text);
}

/** A run whose value is recorded, and whose final errors are. */
class RunShape extends Shape {
  constructor(codec, remember) {
    super();
    this.codec = codec;
    this.remember = remember;
  }

  settle(call, id, value) {
    let bytes;
    try {
      bytes = this.codec.write(value);
    } catch (error) {
      if (this.codec !== codecs.json) throw error;
      // What cannot be written is recorded as done, without a result.
      bytes = undefined;
    }
    call.own = { value };
    return native.settleBytes(call.key, id, bytes);
  }

  recorded(call, error) {
    if (this.remember?.isFinal(error) !== true) return undefined;
    const written = this.remember.write === undefined ? { name: error?.name ?? 'Error', message: messageOf(error) } : this.remember.write(error);
    return Buffer.from(JSON.stringify(written) ?? 'null');
  }

  revive(call, recorded) {
    const said = JSON.parse(recorded.toString('utf8'));
    if (this.remember?.read !== undefined) return this.remember.read(said);
    const error = new Error(said?.message);
    if (typeof said?.name === 'string') Object.defineProperty(error, 'name', { value: said.name, configurable: true, writable: true });
    return error;
  }
}

/** The outcome of a run, with the value that the runner itself has. */
async function outcomeOf(shape, fn, signal, begin, judge) {
  let own;
  const run = Object.create(shape, {
    settle: { value(call, id, value) { const word = shape.settle.call(this, call, id, value); own = call.own; return word; } },
    classes: { value: (call, error) => (judge === undefined ? [] : [judge(error)]) },
  });
  const { value, replayed, attempt, ageMs, recorded } = await through(run, fn, signal, begin);
  const read = replayed ? (value === undefined || value === null ? undefined : shape.codec.read(value)) : own?.value;
  return { value: read, replayed, attempt, ageMs, recorded };
}

class Idempotent {
  constructor(client, name, options) {
    given.text('name', name);
    const { codec, remember, ...settings } = given.options('options', options);
    if (remember !== undefined) {
      const { isFinal, write, read } = given.only('remember', remember, ['isFinal', 'write', 'read']);
      given.func('remember.isFinal', isFinal);
      if (write !== undefined) given.func('remember.write', write);
      if (read !== undefined) given.func('remember.read', read);
    }
    const shape = new RunShape(codecOf(codec), remember);
    const json = given.settings('options', settings);
    behind(this, { _inner: ask(() => client.idempotent(name, json)), _name: name, _shape: shape });
  }

  get name() { return this._name; }

  async run(key, request, work, options) {
    given.text('key', key);
    const print = fingerprint(request);
    given.func('work', work);
    const { signal } = given.only('options', options, ['signal']);
    return outcomeOf(this._shape, work, given.signal(signal), () => this._inner.run(key, print));
  }

  async once(key, ttl, token) {
    given.text('key', key);
    const span = given.span('ttl', ttl);
    return ours(undefined, () => this._inner.once(key, span, given.optionalText('token', token)));
  }

  async get(key) {
    given.text('key', key);
    const { state, attempt, remainingMs, result, isError, ageMs } = await ours(undefined, () => this._inner.get(key));
    switch (state) {
      case 'running': return { state, attempt, remainingMs };
      case 'done': return { state, result: result ?? null, isError, ageMs };
      case 'held': return { state, attempt };
      default: return { state };
    }
  }
}

module.exports = { Idempotent, RunShape, codecOf, codecs, fingerprint, outcomeOf };
