/** The recipe of docs/caching.md: another service owns the data, and its events invalidate what is cached here. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { connect } from 'resil';
import { startRabbit, startServer } from './servers.mjs';
import { settled, until } from './waiting.mjs';

for (const kind of ['stream', 'rabbit']) {
  test(`an event of the owner reaches every cache (${kind})`, async () => {
    const redis = await startServer();
    const source = kind === 'stream'
      ? { type: 'stream', stream: 'user.changed', group: 'shop', reclaim: '1s' }
      : { type: 'rabbit', url: (await startRabbit()).url, queue: 'shop.user.changed' };
    const rows = { 42: 'Ada', 43: 'Grace' };
    const load = async (key) => rows[key];
    // Two processes that cache, each with a local tier. One of them listens; the other hears of it from the server.
    const clients = [await connect(redis.url), await connect(redis.url)];
    const caches = clients.map((client) => client.cached('user', { ttl: '1h', localTtl: '1h' }));
    const allGet = async (key, value) => (await Promise.all(caches.map((cache) => cache.get(key, load)))).every((got) => got === value);
    const listening = async () => {
      const worker = clients[0].worker('shop-user-cache', { source });
      const running = worker.run(async (message) => { await caches[0].invalidate(message.payload.toString()); });
      await until(() => worker.health().source?.isConnected === true);
      return async () => { worker.stop(); await settled(running, 60_000); };
    };
    const client = await connect(redis.url);
    const owner = client.publisher(source);
    let stop = await listening();
    assert.ok(await allGet('42', 'Ada') && await allGet('43', 'Grace'));
    Object.assign(rows, { 42: 'Ada L.', 43: 'never said' });
    await owner.publish('42', { kind: 'user.changed' });
    await until(() => allGet('42', 'Ada L.'));
    assert.ok(await allGet('43', 'Grace'), 'nobody said that this changed');
    // An event that comes twice, and one that comes while nobody listens.
    await owner.publish('42', { kind: 'user.changed' });
    await stop();
    rows[42] = 'A. Lovelace';
    await owner.publish('42', { kind: 'user.changed' });
    stop = await listening();
    await until(() => allGet('42', 'A. Lovelace'));
    await stop();
    for (const one of [client, ...clients]) await one.shutdown(1_000);
  });
}
