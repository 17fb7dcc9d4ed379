'use strict';
/**
 * Values that are loaded once for all who ask.
 */
const given = require('./arguments.js');
const { run } = require('./calls.js');
const { behind } = require('./guard.js');
const { keep } = require('./kept.js');
const { serializerOf, serializers } = require('./serializers.js');
const { readBack } = require('./stored.js');

/** What was found natively, with how old it is. */
function loaded(serializer, found) {
  if (found === undefined) return { isFound: false };
  const { value, ageMs, stale: isStale, version } = found;
  return { isFound: true, value: readBack(serializer, value), ageMs: ageMs ?? null, isStale, ...(version === undefined || version === null ? {} : { version }) };
}

/** What is cached under a name, with versions or without. */
class Loads {
  /** `make` makes what is behind it, of its settings. */
  constructor(name, options, make) {
    given.text('name', name);
    const { serializer, ...settings } = given.options('options', options);
    const json = given.settings('options', settings);
    behind(this, { _inner: given.reading(['serializer'], () => make(json)), _name: name, _serializer: serializerOf(serializer) });
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

  async lookup(key, loader, options) {
    given.atMost('lookup', arguments, 3);
    const write = (value) => this._serializer.write(value);
    const begin = this._serializer === serializers.json ? (number) => this._inner.getJson(key, number) : (number) => this._inner.getBytes(key, number);
    const found = await this._loaded(key, loader, write, options, ['signal'], begin);
    return loaded(this._serializer, found);
  }

  async get(key, loader, options) {
    given.atMost('get', arguments, 3);
    return (await this.lookup(key, loader, options)).value;
  }
}

class VersionedCached extends Loads {
  constructor(client, name, options) { super(name, options, (json) => client.versionedCached(name, json)); }

  async lookup(key, loader, options) {
    given.atMost('lookup', arguments, 3);
    const write = (brought) => {
      const version = Buffer.alloc(8);
      version.writeBigUInt64BE(given.counter('version', brought?.version));
      return Buffer.concat([version, this._serializer.write(brought.value)]);
    };
    const { atLeast = 0n } = given.only('options', options, ['signal', 'atLeast']);
    const least = given.counter('atLeast', atLeast);
    const found = await this._loaded(key, loader, write, options, ['signal', 'atLeast'], (number) => this._inner.get(key, least, number));
    return loaded(this._serializer, found);
  }

  async get(key, loader, options) {
    given.atMost('get', arguments, 3);
    const { isFound, version, value } = await this.lookup(key, loader, options);
    return isFound ? { version, value } : undefined;
  }
}

module.exports = {
  Cached, VersionedCached,
  made: { cached: (...said) => new Cached(...said), versionedCached: (...said) => new VersionedCached(...said) },
};
