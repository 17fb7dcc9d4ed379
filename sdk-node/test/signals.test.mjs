/** A safety signal is right at every moment it is read: late, for the first time, and by a function that never lets the loop turn. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { LockLostError, TimeoutError, connect, handleAll, retry, wrap } from 'resil';
import { Clock } from 'resil/testing';
import { onBoth, startServer } from './servers.mjs';
import { busy, never, until } from './waiting.mjs';

const LEASE_MS = 10_000;

/** What can be lost, each as a function that holds it and hands over its signal. */
const held = {
  lock: async (client) => client.lock('l', { lease: LEASE_MS }).acquire(),
  'shared bulkhead': async (client) => client.sharedBulkhead('s', { maxConcurrentCalls: 1, lease: LEASE_MS }).enter(),
};
const under = {
  'lock.call': (client, work) => client.lock('l', { lease: LEASE_MS }).call(work),
  'lock.wrap': (client, work) => client.lock('l', { lease: LEASE_MS }).wrap(work, { context: true })(),
  'a lock that keeps running': (client, work) => client.lock('l', { lease: LEASE_MS, keepRunningWhenLost: true }).call(work),
  'sharedBulkhead.call': (client, work) => client.sharedBulkhead('s', { maxConcurrentCalls: 1, lease: LEASE_MS }).call(work),
  'several around each other': (client, work) => wrap(retry({ on: handleAll, maxAttempts: 1 }), client.sharedBulkhead('s', { maxConcurrentCalls: 1, lease: LEASE_MS })).call(work),
  'a whole policy': (client, work) => client.policy('p', { sharedBulkhead: { maxConcurrentCalls: 1, lease: LEASE_MS } }).call(work),
};

async function driven(run) {
  const clock = Clock.driven();
  const client = await connect('memory://', { clock });
  await run(client, clock);
  await client.shutdown(0);
}

for (const [name, hold] of Object.entries(held)) {
  test(`a lost ${name}'s signal first read later is aborted`, () => driven(async (client, clock) => {
    const guard = await hold(client);
    clock.advance(2 * LEASE_MS);
    const { signal } = guard;
    assert.equal(signal.aborted, true);
    assert.ok(signal.reason instanceof LockLostError);
    assert.throws(() => signal.throwIfAborted(), LockLostError);
    assert.equal(guard.signal, signal);
  }));

  test(`a ${name}'s signal read before is aborted at loss`, () => driven(async (client, clock) => {
    const { signal } = await hold(client);
    const reported = [];
    signal.addEventListener('abort', () => reported.push(signal.reason));
    assert.deepEqual([signal.aborted, signal.reason, signal.throwIfAborted()], [false, undefined, undefined]);
    clock.advance(2 * LEASE_MS);
    assert.throws(() => signal.throwIfAborted(), LockLostError, 'no turn of the loop was between');
    assert.deepEqual(reported, [signal.reason], 'its listeners are reported, once');
  }));
}

for (const [name, call] of Object.entries(under)) {
  for (const isReadBefore of [false, true]) {
    test(`under ${name} a signal ${isReadBefore ? 'read before' : 'first read after'} a loss is aborted`, () => driven(async (client, clock) => {
      let seen;
      await call(client, (context) => {
        if (isReadBefore) assert.equal(context.signal.aborted, false);
        clock.advance(2 * LEASE_MS);
        seen = [context.signal.aborted, context.signal.reason?.code];
      }).catch((error) => assert.ok(error instanceof LockLostError, String(error)));
      assert.deepEqual(seen, [true, 'LOCK_LOST']);
    }));
  }
}

onBoth(test, 'a function busy beyond its lease reads its loss', async (client, name) => {
  const lock = client.lock(name, { lease: 200, watchdog: false });
  const seen = [];
  await assert.rejects(lock.call(({ signal }) => {
    seen.push(signal.aborted);
    busy(300);
    seen.push(signal.aborted);
  }), LockLostError);
  const guard = await lock.acquire();
  busy(300);
  seen.push(guard.signal.aborted, guard.isHeld);
  assert.deepEqual(seen, [false, true, true, false]);
});

onBoth(test, 'a lock broken under a busy thread reads as lost', async (client, name) => {
  const lock = client.lock(name, { lease: 600 });
  const guard = await lock.acquire();
  const { signal } = guard;
  void lock.breakLock('ann', 'test');
  busy(900);
  assert.deepEqual([signal.aborted, signal.reason instanceof LockLostError], [true, true]);
});

onBoth(test, 'what was released is not lost, whenever read', async (client, name) => {
  const guard = await client.lock(name, { lease: 100 }).acquire();
  const { signal } = guard;
  await guard.release();
  busy(150);
  assert.deepEqual([signal.aborted, guard.signal.aborted, guard.isHeld], [true, true, false]);
  assert.ok(signal.reason.code === 'CANCELLED' && !(signal.reason instanceof LockLostError));
});

onBoth(test, 'a listener that comes after the loss is reported, too', async (client, name) => {
  const lock = client.lock(name, { lease: 600 });
  const guard = await lock.acquire();
  assert.equal(guard.signal.aborted, false);
  await lock.breakLock();
  await until(() => guard.signal.aborted);
  const reported = [];
  guard.on('lost', (error) => reported.push(error));
  await until(() => reported.length > 0);
  guard.once('lost', (error) => reported.push(error));
  await until(() => reported.length > 1);
  assert.ok(reported.every((error) => error === guard.signal.reason));
});

test('a run the server forgot reads that it is lost', async () => {
  const server = await startServer();
  const client = await connect(server.url);
  const runs = client.idempotent('signals', { lease: 300 });
  let seen;
  await assert.rejects(runs.run('k', undefined, ({ signal }) => {
    assert.equal(signal.aborted, false);
    void server.say('DEL', 'resil:idemp:signals:{k}');
    busy(700);
    seen = [signal.aborted, signal.reason instanceof LockLostError];
  }), LockLostError);
  assert.deepEqual(seen, [true, true]);
  await client.shutdown(0);
});

test('a run whose lease ended reads lost in-turn', () => driven(async (client, clock) => {
  for (const isReadBefore of [false, true]) {
    let seen;
    await client.idempotent('signals', { lease: LEASE_MS }).run(`k${isReadBefore}`, undefined, (context) => {
      if (isReadBefore) assert.equal(context.signal.aborted, false);
      clock.advance(2 * LEASE_MS);
      seen = [context.signal.aborted, context.signal.reason?.code];
    }).catch((error) => assert.ok(error instanceof LockLostError, String(error)));
    assert.deepEqual(seen, [true, 'LOCK_LOST']);
  }
}));

onBoth(test, 'a late loader reads that nobody waits for it', async (client, name) => {
  const slow = client.cached('signals', { loadTimeout: 100, retry: 0 });
  let seen;
  await assert.rejects(slow.get(name, (_key, context) => {
    const before = context.signal.aborted;
    busy(400);
    seen = [before, context.signal.aborted, context.signal.reason instanceof TimeoutError];
    return 'late';
  }));
  await until(() => seen !== undefined);
  assert.deepEqual(seen, [false, true, true]);
});

test('an overdue attempt reads so, and the next begins', async () => {
  const client = await connect('memory://');
  const policy = client.policy('p', { on: handleAll, timeout: { attempt: 50 }, retry: { maxAttempts: 2, initialBackoff: 1, maxBackoff: 1 } });
  const seen = [];
  const value = await policy.call(({ attempt, signal }) => {
    if (attempt === 2) return 'second';
    seen.push(signal.aborted);
    busy(120);
    seen.push(signal.aborted, signal.reason.code === 'CANCELLED');
    busy(20);
    seen.push(signal.aborted);
    return never();
  });
  assert.equal(value, 'second');
  assert.deepEqual(seen, [false, true, true, true]);
  await client.shutdown();
});
