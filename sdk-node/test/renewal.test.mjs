/** A lease is renewed while its work runs, whatever the work does to the thread of JavaScript. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Worker } from 'node:worker_threads';

import { connect } from 'resil';
import { KINDS, LEASE_MS, MOST, RUNS, WORK_MS, once, scenes, workOf } from './renewal_scenes.mjs';
import { startServer } from './servers.mjs';
import { busy, settled } from './waiting.mjs';

const places = new Map();
after(async () => {
  for (const { client, worker } of places.values()) {
    await client.shutdown(0);
    await worker.terminate();
  }
});

/** A client here, and another one in a thread of its own. */
async function at(place) {
  if (!places.has(place)) {
    const url = place === 'in memory' ? 'memory://renewal' : (await startServer()).url;
    const worker = new Worker(new URL('./renewal_scenes.mjs', import.meta.url), { workerData: { url } });
    await settled(new Promise((resolve) => worker.once('message', resolve)));
    places.set(place, { client: await connect(url), worker });
  }
  return places.get(place);
}

for (const place of ['in memory', 'on a server']) {
  for (const [scene, play] of Object.entries(scenes)) {
    for (const kind of place === 'in memory' ? KINDS : [KINDS[0], KINDS[2]]) {
      const isOnce = scene in once;
      test(`a busy ${kind} under ${scene} ${isOnce ? 'runs once' : 'is alone'} (${place})`, async () => {
        const { client, worker } = await at(place);
        const counters = new Int32Array(new SharedArrayBuffer(12));
        const name = `${scene}:${kind}`;
        let other;
        const begun = () => {
          other = new Promise((resolve) => worker.once('message', resolve));
          worker.postMessage({ scene, name, counters });
        };
        const came = await settled(play(client, name, workOf(kind, counters, WORK_MS, begun)));
        assert.equal(await settled(other), 'done');
        assert.equal(Atomics.load(counters, RUNS), isOnce ? 1 : 2);
        assert.equal(Atomics.load(counters, MOST), 1, 'never two at once');
        if (scene === 'idempotent.run') assert.deepEqual([came.replayed, came.recorded], [false, true]);
      });
    }
  }
}

for (const place of ['in memory', 'on a server']) {
  test(`work granted to a busy thread begins leased (${place})`, async () => {
    const { client, worker } = await at(place);
    const counters = new Int32Array(new SharedArrayBuffer(12));
    for (const scene of ['idempotent.run', 'lock.call']) {
      counters.fill(0);
      const name = `late:${scene}`;
      const mine = scenes[scene](client, name, workOf('a plain function', counters, 600)).then(() => 'done', (error) => error.code);
      const other = new Promise((resolve) => worker.once('message', resolve));
      // The grant arrives and lapses, and the other one asks, before this thread looks.
      busy(100);
      worker.postMessage({ scene, name, counters });
      busy(LEASE_MS * 2);
      const came = await settled(mine);
      assert.equal(await settled(other), 'done');
      assert.ok(['done', 'LOCK_LOST', 'LOCK_TIMEOUT'].includes(came), came);
      assert.equal(Atomics.load(counters, MOST), 1, 'never two at once');
      if (scene in once) assert.equal(Atomics.load(counters, RUNS), 1);
      else assert.equal(Atomics.load(counters, RUNS), came === 'done' ? 2 : 1);
    }
  });
}
