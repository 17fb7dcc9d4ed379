'use strict';
/**
 * Values that are loaded once for all who ask.
 */
const given = require('./arguments.js');
const { run } = require('./calls.js');
const { wrongType, InvalidArgumentError } = require('./errors.js');
const { behind } = require('./guard.js');
const { keep } = require('./kept.js');
const { LocalTier, ageOf, frozen, valueOf } = require('./local_tier.js');
const { serializerOf, serializers } = require('./serializers.js');
const { readBack } = require('./stored.js');

/** What one call may say of the value it loads. */
const OF_A_VALUE = ['ttl', 'tags'];
const OF_A_CALL = [...OF_A_VALUE, 'softTimeout'];

/** What was found natively, with how old it is. */
function loaded(serializer, found, freezes = false) {
  if (found === undefined || found === null) return { isFound: false };
  const { value: written, ageMs, stale: isStale, version } = found;
  const value = readBack(serializer, written);
  return { isFound: true, value: freezes ? frozen(value) : value, ageMs: ageMs ?? null, isStale, ...(version === undefined || version === null ? {} : { version }) };
}

/** Several texts. One text is a mistake, not its letters. */
function texts(name, said) {
  if (said === null || typeof said !== 'object' || typeof said[Symbol.iterator] !== 'function') throw wrongType(name, 'an array of strings', said);
  return Array.from(said, (one, at) => given.text(`${name}[${at}]`, one));
}

/** Of a call that gives no options, as most do. */
const NO_OPTIONS = Object.freeze({ signal: undefined, json: '{}' });

/** The options of one call as JSON, and its signal. `known`: their names, beside `signal`. */
function particular(said, known) {
  if (said === undefined) return NO_OPTIONS;
  const { signal, tags, ...rest } = given.only('options', said, ['signal', ...known]);
  const settings = tags === undefined || tags === null ? rest : { ...rest, tags: texts('tags', tags) };
  return { signal: given.signal(signal), json: given.settings('options', settings) };
}

/** A value as a loader brings it, with what is special about it. */
class CacheEntry {
  constructor(value, options) {
    given.atMost('CacheEntry', arguments, 2);
    if (value === undefined || value === null) throw wrongType('value', 'something: a loader that finds nothing returns undefined', value);
    const { keep: isKept = true, ...rest } = given.only('options', options, [...OF_A_VALUE, 'keep']);
    if (typeof isKept !== 'boolean') throw wrongType('keep', 'a boolean', isKept);
    if (rest.ttl !== undefined && rest.ttl !== null) given.duration('ttl', rest.ttl);
    this.value = value;
    this.ttl = rest.ttl ?? undefined;
    this.tags = rest.tags === undefined || rest.tags === null ? [] : texts('tags', rest.tags);
    this.keep = isKept;
    Object.freeze(this.tags);
    Object.freeze(this);
  }
}

/** What a loader brought, as the native half reads it: whether it is kept, the options of the value as JSON behind their length, and the value. */
function entryBytes(serializer, brought) {
  const entry = brought instanceof CacheEntry ? brought : undefined;
  const options = Buffer.from(entry === undefined ? '{}' : given.settings('options', { ttl: entry.ttl, tags: entry.tags }));
  const head = Buffer.alloc(5);
  head.writeUInt8(entry === undefined || entry.keep ? 1 : 0);
  head.writeUInt32BE(options.length, 1);
  return Buffer.concat([head, options, serializer.write(entry === undefined ? brought : entry.value)]);
}

/** What is cached under a name, with versions or without. */
class Loads {
  /** `make` makes what is behind it, of its settings. `own`: options that are looked at here. */
  constructor(name, options, make, own = ['serializer']) {
    given.text('name', name);
    const { serializer, ...settings } = given.options('options', options);
    for (const option of own) delete settings[option];
    const json = given.settings('options', settings);
    behind(this, { _inner: given.reading(own, () => make(json)), _name: name, _serializer: serializerOf(serializer) });
  }

  get name() { return this._name; }

  /** Asks for a value; `write` makes the bytes of what the loader brings. */
  async _loaded(key, loader, write, signal, begin) {
    given.text('key', key);
    given.func('loader', loader);
    const kept = { key, loader, write: (value) => (value === undefined || value === null ? undefined : write(value)) };
    // A load may outlive its call: the native half says when nobody can start the loader any more.
    return (await run(signal, () => begin(keep(kept)))) ?? undefined;
  }

  by(key, loader, options) {
    given.atMost('by', arguments, 3);
    if (typeof key !== 'string') given.func('key', key);
    given.func('loader', loader);
    const cached = this;
    const keyOf = (self, args) => given.text('what key returns', typeof key === 'string' ? key : key.apply(self, args));
    const wrapped = async function (...args) {
      return cached.get(keyOf(this, args), () => loader.apply(this, args), options);
    };
    wrapped.invalidate = async function (...args) { return cached.invalidate(keyOf(this, args)); };
    Object.defineProperty(wrapped, 'name', { value: loader.name, configurable: true });
    Object.defineProperty(wrapped, 'length', { value: loader.length, configurable: true });
    return wrapped;
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
  constructor(client, name, options) {
    super(name, options, (json) => client.cached(name, json), ['serializer', 'frozen']);
    const freezes = options?.frozen ?? false;
    if (typeof freezes !== 'boolean') throw wrongType('frozen', 'a boolean', freezes);
    if (freezes && !this._isJson()) throw new InvalidArgumentError("frozen needs the serializer 'json': what others bring cannot be frozen");
    const hasLocal = this._isJson() && this._inner.localSize() > 0;
    behind(this, { _freezes: freezes, _local: hasLocal ? new LocalTier(this._inner, this._serializer, freezes) : undefined });
  }

  /** What the local tier has, for a call that asks for nothing else. */
  _kept(key, loader, options) {
    if (this._local === undefined || options !== undefined || typeof loader !== 'function') return undefined;
    // What is found is a key; any other has yet to be one.
    return this._local.find(key) ?? this._local.look(given.text('key', key));
  }

  /** `how`: the native method. */
  async _found(key, loader, { signal, json }, how) {
    const write = (brought) => entryBytes(this._serializer, brought);
    const found = await this._loaded(key, loader, write, signal, (number) => this._inner[how](key, number, json, this._isJson()));
    return loaded(this._serializer, found, this._freezes);
  }

  /** What is not JSON is then loaded anew. */
  _isJson() { return this._serializer === serializers.json; }

  async lookup(key, loader, options) {
    given.atMost('lookup', arguments, 3);
    const entry = this._kept(key, loader, options);
    if (entry !== undefined) return { isFound: true, value: valueOf(entry), ageMs: ageOf(entry), isStale: false };
    return this._found(key, loader, particular(options, OF_A_CALL), 'get');
  }

  async get(key, loader, options) {
    if (arguments.length > 3) given.atMost('get', arguments, 3);
    const entry = this._kept(key, loader, options);
    if (entry !== undefined) return valueOf(entry);
    return (await this._found(key, loader, particular(options, OF_A_CALL), 'get')).value;
  }

  async refresh(key, loader, options) {
    given.atMost('refresh', arguments, 3);
    return (await this._found(key, loader, particular(options, OF_A_VALUE), 'refresh')).value;
  }

  async getMany(keys, loader, options) {
    given.atMost('getMany', arguments, 3);
    const all = texts('keys', keys);
    given.func('loader', loader);
    const { signal, json } = particular(options, OF_A_CALL);
    const write = (brought) => (brought === undefined || brought === null ? undefined : entryBytes(this._serializer, brought));
    const distinct = [...new Set(all)];
    const keepAll = () => distinct.map((key) => keep({ key, loader, write }));
    const found = await run(signal, () => this._inner.getMany(distinct, keepAll(), json, this._isJson()));
    const values = new Map(distinct.map((key, at) => [key, loaded(this._serializer, found[at], this._freezes).value]));
    return all.map((key) => values.get(key));
  }

  async set(key, value, options) {
    given.atMost('set', arguments, 3);
    given.text('key', key);
    if (value === undefined || value === null) throw wrongType('value', 'something: to say that it is gone, invalidate the key', value);
    const { signal, json } = particular(options, OF_A_VALUE);
    const bytes = this._serializer.write(value);
    await run(signal, () => this._inner.set(key, bytes, json));
  }

  async invalidateEventually(key, options) {
    given.atMost('invalidateEventually', arguments, 2);
    given.text('key', key);
    const { signal } = given.only('options', options, ['signal']);
    return run(given.signal(signal), () => this._inner.invalidateEventually(key));
  }

  async invalidateMany(keys) {
    given.atMost('invalidateMany', arguments, 1);
    const all = texts('keys', keys);
    return run(undefined, () => this._inner.invalidateMany(all));
  }

  async invalidateTag(tag) {
    given.atMost('invalidateTag', arguments, 1);
    given.text('tag', tag);
    await run(undefined, () => this._inner.invalidateTag(tag));
  }

  async clear() {
    given.atMost('clear', arguments, 0);
    await run(undefined, () => this._inner.clear());
  }

  async invalidateOn(keys, options) {
    given.atMost('invalidateOn', arguments, 2);
    const begin = typeof keys === 'object' && keys !== null ? keys[Symbol.asyncIterator] ?? keys[Symbol.iterator] : undefined;
    if (typeof begin !== 'function') throw wrongType('keys', 'an iterable, or an async iterable, of strings', keys);
    const signal = given.signal(given.only('options', options, ['signal']).signal);
    return invalidateEach(this, begin.call(keys), signal);
  }
}

/** One key after another. A source that is left early is closed; it may be waiting, so that nobody waits for its end. */
async function invalidateEach(cached, source, signal) {
  let [invalidated, isOpen, onAbort] = [0, true, undefined];
  const aborted = new Promise((resolve) => { onAbort = () => resolve(ABORTED); });
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    for (;;) {
      const next = await Promise.race([source.next(), aborted]);
      // Says that the caller gave up.
      if (next === ABORTED) return await run(signal, () => {});
      isOpen = !next.done;
      if (next.done) return invalidated;
      // As `for await` does with an iterable of promises.
      invalidated += Number(await cached.invalidateEventually(await next.value, { signal }));
    }
  } finally {
    signal?.removeEventListener('abort', onAbort);
    if (isOpen) Promise.resolve(source.return?.()).catch(() => {});
  }
}

const ABORTED = Symbol('aborted');

class VersionedCached extends Loads {
  constructor(client, name, options) { super(name, options, (json) => client.versionedCached(name, json)); }

  async lookup(key, loader, options) {
    given.atMost('lookup', arguments, 3);
    const write = (brought) => {
      const version = Buffer.alloc(8);
      version.writeBigUInt64BE(given.counter('version', brought?.version));
      return Buffer.concat([version, this._serializer.write(brought.value)]);
    };
    const { atLeast = 0n, signal } = given.only('options', options, ['signal', 'atLeast']);
    const least = given.counter('atLeast', atLeast);
    const found = await this._loaded(key, loader, write, given.signal(signal), (number) => this._inner.get(key, least, number));
    return loaded(this._serializer, found);
  }

  async get(key, loader, options) {
    given.atMost('get', arguments, 3);
    const { isFound, version, value } = await this.lookup(key, loader, options);
    return isFound ? { version, value } : undefined;
  }
}

module.exports = {
  CacheEntry, Cached, VersionedCached,
  made: { cached: (...said) => new Cached(...said), versionedCached: (...said) => new VersionedCached(...said) },
};
