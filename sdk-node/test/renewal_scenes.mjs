/**
 * Work that keeps its thread busy for several leases, under everything that has a lease. The same scene is played by the test, which works, and by
 * a thread of its own (this file as a worker), which wants the same thing meanwhile.
 */
import { parentPort, workerData } from 'node:worker_threads';

import { connect, handleAll, retry, wrap } from 'resil';
import { busy } from './waiting.mjs';

export const LEASE_MS = 400;
export const WORK_MS = 1_000;
const WAIT_MS = 20_000;

/** Those that let one in at a time. */
export const oneAtATime = {
  'lock.call': (client, name, work) => client.lock(name, { lease: LEASE_MS, wait: WAIT_MS }).call(work),
  'lock.wrap': (client, name, work) => client.lock(name, { lease: LEASE_MS, wait: WAIT_MS }).wrap(work)(),
  'lock.acquire': async (client, name, work) => {
    const held = await client.lock(name, { lease: LEASE_MS, wait: WAIT_MS }).acquire();
    await work();
    held.ensure();
    await held.release();
  },
  'sharedBulkhead.call': (client, name, work) => client.sharedBulkhead(name, { maxConcurrentCalls: 1, lease: LEASE_MS, maxWait: WAIT_MS }).call(work),
  'sharedBulkhead.wrap': (client, name, work) => client.sharedBulkhead(name, { maxConcurrentCalls: 1, lease: LEASE_MS, maxWait: WAIT_MS }).wrap(work)(),
  'a whole policy': (client, name, work) => client.policy('p', { sharedBulkhead: { name, maxConcurrentCalls: 1, lease: LEASE_MS, maxWait: WAIT_MS } }).call(work),
  'a lock inside of a retry': (client, name, work) => wrap(retry({ on: handleAll }), client.lock(name, { lease: LEASE_MS, wait: WAIT_MS })).call(work),
};
/** Those that run once for all. */
export const once = {
  'idempotent.run': (client, name, work) => client.idempotent('renewal', { lease: LEASE_MS, wait: WAIT_MS }).run(name, undefined, work),
  'policy.callOnce': (client, name, work) => client.policy('q', { on: handleAll, retry: { maxAttempts: 2 } })
    .callOnce(client.idempotent('renewal', { lease: LEASE_MS, wait: WAIT_MS }), name, undefined, work),
  'cached.get': (client, name, work) => client.cached('renewal', { lease: LEASE_MS, loadTimeout: WAIT_MS }).get(name, work),
  'versioned.get': (client, name, work) => client.versionedCached('renewal', { lease: LEASE_MS, loadTimeout: WAIT_MS }).get(name, async () => { await work(); return { version: 1, value: 1 }; }),
};
export const scenes = { ...oneAtATime, ...once };

/** Counters that both threads see: who is inside now, the most that ever were, and how often it ran. */
const INSIDE = 0;
export const MOST = 1;
export const RUNS = 2;

/** `kind`: how the function is written. `begun` is called once it runs. */
export function workOf(kind, counters, ms, begun = () => {}) {
  const counted = () => {
    Atomics.add(counters, RUNS, 1);
    const inside = Atomics.add(counters, INSIDE, 1) + 1;
    if (inside > Atomics.load(counters, MOST)) Atomics.store(counters, MOST, inside);
    begun();
    busy(ms);
    Atomics.sub(counters, INSIDE, 1);
    return 'done';
  };
  switch (kind) {
    case 'a plain function': return counted;
    case 'an async function': return async () => counted();
    default: return async () => {
      await new Promise((resolve) => setImmediate(resolve));
      return counted();
    };
  }
}
export const KINDS = ['a plain function', 'an async function', 'a function that awaited before'];

if (parentPort !== null && workerData?.url !== undefined) {
  const client = await connect(workerData.url);
  parentPort.on('message', async ({ scene, name, counters }) => {
    try {
      await scenes[scene](client, name, workOf('a plain function', counters, 1));
      parentPort.postMessage('done');
    } catch (error) {
      parentPort.postMessage(String(error?.stack ?? error));
    }
  });
  parentPort.postMessage('ready');
}
