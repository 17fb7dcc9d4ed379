/** The local tier as JavaScript has it: who gets which value, and that nothing is served that was invalidated, is over, or may be out of date. */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { connect, telemetry } from 'resil';
import { Clock, raw } from 'resil/testing';
import { startServer } from './servers.mjs';
import { until } from './waiting.mjs';

const LOCAL = { ttl: '1h', localTtl: '1h' };
const never = () => { throw new Error('it is cached'); };
/** Kept, and served from here since. */
async function keep(cache, key, value) {
  await cache.get(key, () => value);
  for (let at = 0; at < 3; at += 1) assert.deepEqual(await cache.get(key, never), value);
}

test('every caller has its own value, unless values are frozen', async () => {
  const client = await connect('memory://');
  const [cache, frozen] = [client.cached('own', LOCAL), client.cached('frozen', { ...LOCAL, frozen: true })];
  const user = { name: 'Ada', roles: ['admin'] };
  for (const value of [user, 'text', 7, true, [1]]) await keep(cache, `key-${JSON.stringify(value)}`, value);
  await keep(cache, 'user', user);
  const [one, other] = [await cache.get('user', never), await cache.get('user', never)];
  one.roles.push('owner');
  assert.deepEqual([other, await cache.get('user', never)], [user, user]);
  assert.equal(Object.isFrozen(other), false);
  const first = await frozen.get('user', () => user);
  assert.ok(Object.isFrozen(first) && Object.isFrozen(first.roles), 'also of a load');
  const [mine, its] = [await frozen.get('user', never), await frozen.get('user', never)];
  assert.equal(mine, its);
  assert.throws(() => { its.roles.push('owner'); }, TypeError);
  assert.deepEqual(await frozen.get('user', never), user);
  assert.ok(Object.isFrozen((await frozen.getMany(['user'], never))[0]));
  const { isFound, value, ageMs, isStale } = await frozen.lookup('user', never);
  assert.deepEqual([isFound, value, isStale], [true, user, false]);
  assert.ok(ageMs >= 0 && ageMs < 60_000);
  assert.throws(() => client.cached('x', { frozen: 1 }), /frozen must be a boolean/);
  assert.throws(() => client.cached('x', { frozen: true, serializer: 'v8' }), /frozen needs the serializer 'json'/);
  assert.throws(() => client.cached('x', { frosen: true }), /known: serializer, frozen/);
  assert.throws(() => client.versionedCached('x', { frozen: true }), /not known/);
  await assert.rejects(cache.get('user', 'no function'), /loader must be a function/);
  await assert.rejects(cache.get(7, never), /key must be a string/);
});

test('what is invalidated in this process is not served after', async () => {
  const client = await connect('memory://');
  const [cache, other] = [client.cached('here', LOCAL), client.cached('here', LOCAL)];
  const ways = [
    () => cache.invalidate('a'), () => other.invalidate('a'), () => other.invalidateMany(['a']), () => other.invalidateTag('t'),
    () => other.clear(), () => other.set('a', 'newer'), () => other.refresh('a', () => 'newer'),
  ];
  for (const way of ways) {
    await cache.clear();
    await cache.get('a', () => 'old', { tags: ['t'] });
    await keep(cache, 'a', 'old');
    await way();
    assert.equal(await cache.get('a', () => 'newer'), 'newer', String(way));
  }
});

test('what another process invalidates is not served 100 ms later', async () => {
  const server = await startServer();
  const [client, other] = [await connect(server.url), await connect(server.url)];
  const [cache, far] = [client.cached('far', LOCAL), other.cached('far', LOCAL)];
  for (let round = 0; round < 30; round += 1) {
    await until(async () => {
      await cache.get('a', () => `v${round}`);
      return cache._local.find('a') !== undefined;
    });
    assert.equal(await cache.get('a', never), `v${round}`);
    if (round % 3 === 0) await far.invalidate('a');
    else if (round % 3 === 1) await far.clear();
    else await far.set('a', `v${round + 1}`);
    const reported = performance.now();
    while ((await cache.get('a', () => `v${round + 1}`)) !== `v${round + 1}`) {
      assert.ok(performance.now() - reported < 100, `round ${round}: an old value after ${performance.now() - reported} ms`);
      await new Promise(setImmediate);
    }
  }
  await client.shutdown(1_000);
  await other.shutdown(1_000);
});

test('what is invalidated while deaf is not served after', async () => {
  const server = await startServer();
  const [client, other] = [await connect(server.url), await connect(server.url)];
  const [cache, far] = [client.cached('deaf', LOCAL), other.cached('deaf', LOCAL)];
  for (let round = 0; round < 10; round += 1) {
    await until(async () => {
      await cache.get('a', () => `v${round}`);
      return cache._local.find('a') !== undefined;
    });
    await raw(other, ['CLIENT', 'KILL', 'TYPE', 'pubsub']).catch(() => {});
    await far.invalidate('a');
    const reported = performance.now();
    while ((await cache.get('a', () => `v${round + 1}`)) !== `v${round + 1}`) {
      assert.ok(performance.now() - reported < 2_000, `round ${round}: an old value after ${performance.now() - reported} ms`);
      await new Promise(setImmediate);
    }
    // Once new, never old again, whatever is heard late.
    for (let at = 0; at < 20; at += 1) {
      assert.equal(await cache.get('a', () => 'later'), `v${round + 1}`);
      await new Promise(setImmediate);
    }
    await cache.invalidate('a');
  }
  await client.shutdown(1_000);
  await other.shutdown(1_000);
});

test('a value ends with its time, also on driven clocks', async () => {
  const client = await connect('memory://');
  const cache = client.cached('short', { ttl: '1h', localTtl: '40ms' });
  await keep(cache, 'a', 'old');
  const kept = cache._local.find('a');
  assert.ok(kept.until - performance.now() <= 40);
  await sleep(45);
  assert.equal(cache._local.find('a'), undefined);
  const clock = Clock.driven();
  const driven = (await connect('memory://', { clock })).cached('driven', { ttl: '1h', localTtl: '1m' });
  await keep(driven, 'a', 'old');
  assert.equal(driven._local.find('a'), undefined, 'nothing is kept here');
  clock.advance('2h');
  assert.equal(await driven.get('a', () => 'new'), 'new');
});

test('it holds at most its maximum, and no closed client', async () => {
  const client = await connect('memory://');
  const cache = client.cached('small', { ...LOCAL, localSize: 3 });
  for (let at = 0; at < 10; at += 1) await keep(cache, `key-${at}`, at);
  assert.equal(cache._local.entries.size, 3);
  assert.equal(await cache.get('key-9', never), 9);
  await client.shutdown(100);
  await assert.rejects(cache.get('key-9', never), { code: 'SHUTTING_DOWN' });
});

test('where memory cannot be shared nothing is kept here', async () => {
  const client = await connect('memory://');
  const cache = client.cached('unshared', LOCAL);
  const inner = { localSize: () => 10, epoch: () => new Uint32Array(1), answered: () => new Uint32Array(1), endEpoch() {}, glance: (key) => cache._inner.glance(key) };
  const copied = new cache._local.constructor(inner, cache._serializer, false);
  await keep(cache, 'a', 'text');
  assert.equal(copied.look('a').value, 'text');
  assert.equal(copied.find('a'), undefined);
});

test('what another program wrote is loaded anew', async () => {
  const client = await connect('memory://');
  const [cache, bytes] = [client.cached('mixed', LOCAL), client.cached('mixed', { ...LOCAL, serializer: 'bytes' })];
  await bytes.set('a', Buffer.from('not json'));
  assert.deepEqual(await bytes.get('a', never), Buffer.from('not json'));
  assert.equal(await cache.get('a', () => 'json'), 'json');
});

test('hits are counted, and reported to listeners', async () => {
  const client = await connect('memory://');
  const cache = client.cached('counted', LOCAL);
  const local = () => telemetry.metrics().find(({ metric, labels }) => metric === 'resil_cache_gets_total' && labels.name === 'counted' && labels.outcome === 'local')?.value ?? 0;
  await cache.get('a', () => 'x');
  for (let at = 1; at <= 100; at += 1) {
    await cache.get('a', never);
    if (at % 30 === 0) assert.equal(local(), at);
  }
  assert.equal(local(), 100);
  const heard = [];
  const hear = ({ primitive, name, outcome }) => heard.push([primitive, name, outcome]);
  subscribe('resil:call', hear);
  await cache.get('a', never);
  await cache.get('a', never);
  await until(() => heard.length >= 2);
  unsubscribe('resil:call', hear);
  assert.deepEqual(heard, Array(2).fill(['cache', 'counted', 'found']));
  assert.equal(local(), 102);
});
