/** What a cache offers beyond get: set, many keys at once, tags, clearing, refreshing, events. In memory, and on a server. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { CacheEntry, connect } from 'resil';
import { onBoth, startServer } from './servers.mjs';
import { never, settled, turn, until } from './waiting.mjs';

/** Where values come from; it counts how often each is asked for. */
function source() {
  const loads = [];
  const load = (key) => {
    loads.push(key);
    return key.startsWith('no') ? undefined : `${key}#${loads.filter((one) => one === key).length}`;
  };
  return { loads, load };
}

let last = 0;
const things = (client, options) => client.cached(`things-${(last += 1)}`, { ttl: '60s', ...options });

onBoth(test, 'a value that is set is not loaded', async (client) => {
  const [{ loads, load }, cache] = [source(), things(client)];
  await cache.set('a', 'known');
  assert.equal(await cache.get('a', load), 'known');
  await cache.set('a', { newer: 1 }, { ttl: '1h', tags: ['x'] });
  assert.deepEqual(await cache.get('a', load), { newer: 1 });
  assert.deepEqual(loads, []);
  await cache.invalidateTag('x');
  assert.equal(await cache.get('a', load), 'a#1');
  await assert.rejects(cache.set('a', undefined), /value must be something/);
});

onBoth(test, 'many keys keep their order, only missing ones load', async (client) => {
  const [{ loads, load }, cache] = [source(), things(client)];
  await cache.set('b', 'set');
  assert.deepEqual(await cache.getMany(['a', 'b', 'no', 'a'], load), ['a#1', 'set', undefined, 'a#1']);
  assert.deepEqual(loads.sort(), ['a', 'no']);
  assert.deepEqual(await cache.getMany(new Set(['no', 'a', 'c']), async (key) => load(key)), [undefined, 'a#1', 'c#1']);
  assert.deepEqual(await cache.getMany([], load), []);
  assert.equal(await cache.invalidateMany(['a', 'b', 'never']), 2);
  assert.deepEqual(await cache.getMany(['a', 'b', 'c'], load), ['a#2', 'b#1', 'c#1']);
  await assert.rejects(cache.getMany('abc', load), /keys must be an array of strings/);
  await assert.rejects(cache.getMany(['a', 7], load), /keys\[1\] must be a string/);
});

onBoth(test, 'one of many keys rejects with its own error', async (client) => {
  const cache = things(client, { errorTtl: 0, retry: 0 });
  const down = new Error('b is down');
  const load = (key) => { if (key === 'b') throw down; return key; };
  await assert.rejects(cache.getMany(['a', 'b'], load), (error) => error === down);
  assert.equal(await cache.get('a', load), 'a');
});

onBoth(test, 'an invalidated tag takes only its own values', async (client) => {
  const [{ load }, cache] = [source(), things(client)];
  await cache.get('a', load, { tags: ['red'] });
  await cache.get('b', (key) => new CacheEntry(load(key), { tags: ['red', 'round'] }));
  await cache.get('c', load, { tags: ['blue'] });
  await cache.invalidateTag('red');
  assert.deepEqual(await cache.getMany(['a', 'b', 'c'], load), ['a#2', 'b#2', 'c#1']);
  await cache.clear();
  assert.deepEqual(await cache.getMany(['a', 'b', 'c'], load), ['a#3', 'b#3', 'c#2']);
});

onBoth(test, 'a loader says how long its value is kept', async (client) => {
  const [{ load }, cache] = [source(), things(client)];
  const unkept = (key) => new CacheEntry(load(key), { keep: false });
  for (const number of [1, 2, 3]) assert.equal(await cache.get('a', unkept), `a#${number}`);
  assert.equal(await cache.get('b', () => new CacheEntry('short', { ttl: 20 })), 'short');
  await until(async () => (await cache.get('b', load)) === 'b#1');
  assert.equal(await cache.get('c', load, { ttl: '20ms' }), 'c#1');
  await until(async () => (await cache.get('c', load)) === 'c#2');
  assert.throws(() => new CacheEntry(null), /value must be something/);
  assert.throws(() => new CacheEntry('x', { keep: 1 }), /keep must be a boolean/);
  assert.throws(() => new CacheEntry('x', { tags: 'team' }), /tags must be an array of strings/);
  await assert.rejects(cache.get('d', () => new CacheEntry('x', { tags: [''] })), /tags must have 1 to 256 bytes/);
  await assert.rejects(cache.get('e', load, { tags: 'team' }), /tags must be an array of strings/);
  await assert.rejects(cache.get('e', load, { ttl: -1 }), { code: 'INVALID_POLICY' });
  await assert.rejects(cache.get('e', load, { tll: 1 }), /options.tll/);
});

onBoth(test, 'refresh loads anew and returns what was loaded', async (client) => {
  const [{ load }, cache] = [source(), things(client, { stale: '60s' })];
  assert.equal(await cache.get('a', load), 'a#1');
  assert.equal(await cache.refresh('a', load, { tags: ['t'] }), 'a#2');
  assert.equal(await cache.get('a', load), 'a#2');
  await cache.invalidateTag('t');
  assert.equal(await cache.get('a', load), 'a#3');
});

onBoth(test, 'a function that is cached invalidates by its own arguments', async (client) => {
  const [{ load }, cache] = [source(), things(client)];
  const nameOf = cache.by((user, lang = 'en') => `${user}:${lang}`, async function nameOf(user, lang = 'en') { return load(`${user}:${lang}`); }, { tags: ['names'] });
  assert.deepEqual([await nameOf(7), await nameOf(7), await nameOf(7, 'de')], ['7:en#1', '7:en#1', '7:de#1']);
  assert.deepEqual([nameOf.name, nameOf.length], ['nameOf', 1]);
  assert.equal(await nameOf.invalidate(7, 'de'), true);
  assert.equal(await nameOf.invalidate(8), false);
  assert.deepEqual([await nameOf(7), await nameOf(7, 'de')], ['7:en#1', '7:de#2']);
  await cache.invalidateTag('names');
  assert.equal(await nameOf(7), '7:en#2');
  await assert.rejects(cache.by(() => 7, load)(), /what key returns must be a string/);
  const rows = client.versionedCached(`rows-${(last += 1)}`).by('all', () => ({ version: 3, value: load('rows') }));
  assert.deepEqual([await rows(), await rows()], Array(2).fill({ version: 3n, value: 'rows#1' }));
  assert.equal(await rows.invalidate(), true);
  assert.equal((await rows()).value, 'rows#2');
});

onBoth(test, 'keys of an iterator are invalidated one after another', async (client) => {
  const [{ load }, cache] = [source(), things(client)];
  await cache.getMany(['a', 'b', 'c'], load);
  assert.equal(await cache.invalidateOn(['a', 'b']), 2);
  assert.deepEqual(await cache.getMany(['a', 'b', 'c'], load), ['a#2', 'b#2', 'c#1']);
  const acknowledged = [];
  async function* events() {
    for (const key of ['a', 'c']) {
      yield key;
      // The server knows: a get that begins now loads anew.
      assert.equal(await cache.get(key, load), `${key}#${key === 'a' ? 3 : 2}`);
      acknowledged.push(key);
    }
  }
  assert.equal(await cache.invalidateOn(events()), 2);
  assert.deepEqual(acknowledged, ['a', 'c']);
  const gone = new Error('the broker is gone');
  await assert.rejects(cache.invalidateOn((function* () { yield 'a'; throw gone; })()), (error) => error === gone);
  await assert.rejects(cache.invalidateOn([7]), /key must be a string/);
  await assert.rejects(cache.invalidateOn('abc'), /keys must be an iterable/);
});

onBoth(test, 'a wait for events ends with its signal', async (client) => {
  const cache = things(client);
  let isClosed = false;
  const silent = { next: never, return: async () => { isClosed = true; return { done: true }; }, [Symbol.asyncIterator]() { return this; } };
  const giveUp = new AbortController();
  const listening = cache.invalidateOn(silent, { signal: giveUp.signal });
  await turn();
  giveUp.abort(new Error('enough'));
  await assert.rejects(settled(listening), { code: 'CANCELLED' });
  assert.equal(isClosed, true);
});

test('what is not JSON is loaded anew', async () => {
  const client = await connect((await startServer()).url);
  const [{ load }, raw, cache] = [source(), client.cached('mixed', { serializer: 'bytes' }), client.cached('mixed')];
  for (const key of ['a', 'b']) await raw.set(key, Buffer.from('not json'));
  assert.equal(await cache.get('a', load), 'a#1');
  assert.deepEqual(await cache.getMany(['a', 'b'], load), ['a#1', 'b#1']);
  await client.shutdown(1_000);
});

test('an invalidation is insisted on while the server is away', async () => {
  const server = await startServer();
  const client = await connect(server.url, { commandTimeout: '200ms' });
  const [{ load }, cache] = [source(), client.cached('things', { ttl: '60s' })];
  assert.equal(await cache.get('a', load), 'a#1');
  await server.kill();
  let isOver = false;
  const telling = cache.invalidateEventually('a').finally(() => { isOver = true; });
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(isOver, false);
  await server.restart();
  assert.equal(await settled(telling, 30_000), true);
  await client.shutdown(1_000);
});
