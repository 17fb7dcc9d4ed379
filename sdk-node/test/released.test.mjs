/** What was let go of: nothing is kept for it, and nobody goes on under its signal. */
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';

import { CancelledError, handleAll, LockLostError, retry, wrap } from 'resil';
import { onBoth } from './servers.mjs';
import { until } from './waiting.mjs';

const require = createRequire(import.meta.url);
const native = require('../lib/native.js');
const { kept, listeners } = require('../lib/kept.js');

const isReleased = (signal) => signal.aborted && signal.reason instanceof CancelledError && /released/.test(signal.reason.message);

/** How a guard is had, watched and let go of. */
const WAYS = {
  'the signal of a lock': async (client, name) => { const held = await client.lock(name).acquire(); void held.signal; await held.release(); },
  'a listener of a lock': async (client, name) => { const held = await client.lock(name).acquire(); held.once('lost', () => {}); await held.release(); },
  'a lock that is disposed of': async (client, name) => { const held = await client.lock(name).acquire(); void held.signal; await held[Symbol.asyncDispose](); },
  'a place in a shared bulkhead': async (client, name) => { const held = await client.sharedBulkhead(name, 2).enter(); void held.signal; await held.leave(); },
  'a lock that was lost': async (client, name) => {
    const held = await client.lock(name).acquire();
    held.once('lost', () => {});
    await client.lock(name).breakLock();
    await assert.rejects(held.release(), LockLostError);
  },
};

for (const [what, way] of Object.entries(WAYS)) {
  onBoth(test, `nothing watches after the end: ${what}`, async (client, name) => {
    await way(client, name);
    const before = { tasks: native.liveTasks(), listeners: listeners.size };
    for (let at = 0; at < 50; at += 1) await way(client, name);
    assert.ok(listeners.size <= before.listeners, `${listeners.size} listeners, ${before.listeners} before`);
    // Tasks that were ended are gone a moment later; others of the client come and go.
    await until(() => native.liveTasks() < before.tasks + 10);
  });
}

/** Kept for ever before, where the error was one of ours: one for each load. */
onBoth(test, 'errors of loads that failed are not kept', async (client, name) => {
  const cache = client.cached(name.replaceAll(/[{}]/g, ''), { errorTtl: 0 });
  const before = kept.size;
  for (let at = 0; at < 50; at += 1) {
    await assert.rejects(cache.get(`own-${at}`, () => 5n), /JSON does not have/);
    await assert.rejects(cache.get(`theirs-${at}`, () => { throw new RangeError('theirs'); }), RangeError);
  }
  await until(() => kept.size < before + 10);
});

onBoth(test, 'the signal of a released guard is aborted', async (client, name) => {
  for (const isReadBefore of [true, false]) {
    const held = await client.lock(name).acquire();
    const place = await client.sharedBulkhead(name, 2).enter();
    let aborts = 0;
    if (isReadBefore) {
      assert.deepEqual([held.signal.aborted, place.signal.aborted], [false, false]);
      for (const { signal } of [held, place]) signal.addEventListener('abort', () => { aborts += 1; });
    }
    await Promise.all([held.release(), place.leave()]);
    assert.ok(isReleased(held.signal) && isReleased(place.signal));
    assert.equal(aborts, isReadBefore ? 2 : 0);
  }
});

onBoth(test, 'a refused release leaves the guard and its signal', async (client, name) => {
  const held = await client.lock(name).acquire();
  const extending = held.extend('20s');
  const [error] = await Promise.all([held.release().then(() => undefined, (caught) => caught), extending]);
  if (error !== undefined) {
    assert.equal(error.code, 'INVALID_ARGUMENT');
    assert.deepEqual([held.isHeld, held.signal.aborted], [true, false]);
    await held.release();
  }
  assert.ok(isReleased(held.signal));
});

onBoth(test, 'a guard that was lost says lost, and not released', async (client, name) => {
  const held = await client.lock(name).acquire();
  const reported = [];
  held.on('lost', (error) => reported.push(error));
  await client.lock(name).breakLock();
  await assert.rejects(held.release(), LockLostError);
  await until(() => reported.length > 0);
  assert.ok(reported[0] instanceof LockLostError && held.signal.aborted);
  assert.equal(reported.length, 1);
});

onBoth(test, 'an escaped signal is aborted after its call', async (client, name) => {
  const seen = { inside: [], outside: [] };
  const work = ({ signal }) => { seen.outside.push(signal); seen.inside.push(signal.aborted); return 1; };
  const calls = [
    () => client.lock(name).call(work),
    () => client.sharedBulkhead(name, 2).call(work),
    () => client.idempotent('escaped').run(name, undefined, work),
    () => client.policy(name, { shed: 3 }).callOnce(client.idempotent('escaped'), `${name}once`, undefined, work),
    () => client.lock(name).call((context) => { work(context); throw new Error('failed'); }).catch(() => {}),
    () => wrap(retry({ on: handleAll, maxAttempts: 2, initialBackoff: 1 }), client.lock(name)).call(async (context) => { work(context); await null; throw new Error('again'); }).catch(() => {}),
  ];
  for (const call of calls) await call();
  assert.equal(seen.outside.length, 7);
  assert.deepEqual(seen.inside, new Array(7).fill(false));
  assert.ok(seen.outside.every(isReleased));
});

onBoth(test, 'nothing is aborted before the call has its result', async (client, name) => {
  const events = [];
  await client.lock(name).call(async ({ signal }) => {
    signal.addEventListener('abort', () => events.push('aborted'));
    await null;
    assert.equal(signal.aborted, false);
    return events.push('returned');
  });
  assert.deepEqual(events, ['returned', 'aborted']);
});

onBoth(test, 'an escaped context’s signal is aborted, however late read', async (client, name) => {
  let escaped;
  await client.lock(name).call((context) => { escaped = context; });
  assert.ok(isReleased(escaped.signal));
});
