'use strict';
/**
 * Values that are loaded once for all who ask.
 */
const { ask } = require('./errors.js');
const given = require('./arguments.js');
const { run } = require('./calls.js');
const { behind } = require('./guard.js');
const { keep } = require('./kept.js');
const { serializerOf, serializers } = require('./serializers.js');
const { readBack } = require('./stored.js');

/** What is cached under a name, with versions or without. */
class Loads {
  /** `make` makes what is behind it, of its settings. */
  constructor(name, options, make) {
    given.text('name', name);
    const { serializer, ...settings } = given.options('options', options);
    const json = given.settings('options', settings);
    behind(this, { _inner: ask(() => make(json)), _name: name, _serializer: serializerOf(serializer) });
  }

  get name() { return this._name; }

  /** Asks for a value; `write` makes the bytes of what the loader brings. */
  async _loaded(key, loader, write, options, known, begin) {
    given.text('key', key);
    given.func('loader', loader);
    const signal = given.signal(given.only('options', options, known).signal);
    const number = keep({ key, loader, write: (value) => (value === undefined || value === null ? undefined : write(value)) });
    // A load may outlive its call: the native half says when nobody can start the loader any more.
    return (await run(signal, () => begin(number))) ?? undefined;
  }

  async invalidate(key) {
    given.text('key', key);
    return run(undefined, () => this._inner.invalidate(key));
  }

  async invalidateSoft(key) {
    given.text('key', key);
    return run(undefined, () => this._inner.invalidateSoft(key));
  }
}

class Cached extends Loads {
  constructor(client, name, options) { super(name, options, (json) => client.cached(name, json)); }

  async load(key, loader, options) {
    given.atMost('load', arguments, 3);
    const write = (value) => this._serializer.write(value);
    const begin = this._serializer === serializers.json ? (number) => this._inner.getJson(key, number) : (number) => this._inner.getBytes(key, number);
    const found = await this._loaded(key, loader, write, options, ['signal'], begin);
    if (found === undefined) return { found: false };
    return { found: true, value: readBack(this._serializer, found.value), ageMs: found.ageMs ?? null, stale: found.stale };
  }

  async get(key, loader, options) {
    given.atMost('get', arguments, 3);
    return (await this.load(key, loader, options)).value;
  }
}

class VersionedCached extends Loads {
  constructor(client, name, options) { super(name, options, (json) => client.versionedCached(name, json)); }

  async get(key, loader, options) {
    given.atMost('get', arguments, 3);
    const write = (brought) => {
      const version = Buffer.alloc(8);
      version.writeBigUInt64BE(given.counter('version', brought?.version));
      return Buffer.concat([version, this._serializer.write(brought.value)]);
    };
    const { atLeast = 0n } = given.only('options', options, ['signal', 'atLeast']);
    const least = given.counter('atLeast', atLeast);
    const found = await this._loaded(key, loader, write, options, ['signal', 'atLeast'], (number) => this._inner.get(key, least, number));
    return found === undefined ? undefined : { version: found.version, value: readBack(this._serializer, found.value) };
  }
}

module.exports = {
  Cached, VersionedCached,
  made: { cached: (...said) => new Cached(...said), versionedCached: (...said) => new VersionedCached(...said) },
};
