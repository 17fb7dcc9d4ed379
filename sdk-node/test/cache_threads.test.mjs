/** A cache that several threads of a process use: each has its own client, and any may end at any time. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';

import { connect } from 'resil';
import { startServer } from './servers.mjs';

const SETTINGS = { ttl: '1h', lease: '2s', loadTimeout: '1m' };
const THREAD = `
  const { parentPort, workerData } = require('node:worker_threads');
  const { connect } = require('resil');
  (async () => {
    const { url, settings, blocks, callers } = workerData;
    const client = await connect(url);
    const cache = client.cached('user', settings);
    const load = () => { parentPort.postMessage('loads'); return callers > 0 ? 'loaded' : new Promise(() => {}); };
    if (callers > 0) {
      const all = await Promise.all(Array.from({ length: callers }, () => cache.get('k', load)));
      parentPort.postMessage(all.every((value) => value === 'loaded') ? 'all' : 'other');
      await client.shutdown(1_000);
      return;
    }
    cache.get('k', load).catch(() => {});
    parentPort.postMessage('asked');
    // The lead is granted, and nobody here starts the loader.
    if (blocks) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    setInterval(() => {}, 1_000);
  })();
`;

function start(url, more) {
  return new Worker(THREAD, { eval: true, workerData: { url, settings: SETTINGS, ...more } });
}

function heard(worker, wanted) {
  return new Promise((resolve, reject) => {
    worker.on('error', reject);
    worker.on('message', (message) => { if (message === wanted) resolve(); });
  });
}

/** Failed before: all others learned that the load failed, or waited for the load timeout. */
test('a thread that ends amid a load fails nobody', { timeout: 60_000 }, async () => {
  const server = await startServer();
  const client = await connect(server.url);
  const cache = client.cached('user', SETTINGS);
  const leads = async () => JSON.stringify(await server.say('RES.SFLIGHT', 'INFO', 'resil:cache:user:{k}'));
  for (const blocks of [false, true]) {
    await cache.invalidate('k');
    const idle = await leads();
    const worker = start(server.url, { blocks });
    await heard(worker, blocks ? 'asked' : 'loads');
    const until = Date.now() + 10_000;
    while (await leads() === idle) assert.ok(Date.now() < until, 'nobody leads');
    const getting = cache.get('k', () => 'mine');
    await worker.terminate();
    const terminated = Date.now();
    assert.equal(await getting, 'mine');
    assert.ok(Date.now() - terminated < 10_000, 'the load timeout is a minute');
  }
  await client.shutdown(1_000);
});

test('callers of several threads share one load', { timeout: 60_000 }, async () => {
  const server = await startServer();
  const workers = Array.from({ length: 4 }, () => start(server.url, { callers: 100 }));
  let loads = 0;
  for (const worker of workers) worker.on('message', (message) => { loads += message === 'loads' ? 1 : 0; });
  await Promise.all(workers.map((worker) => heard(worker, 'all')));
  assert.equal(loads, 1);
  await Promise.all(workers.map((worker) => worker.terminate()));
});
