/** Locks over several servers, and several locks at once. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { LockTimeoutError, connect } from 'resil';
import { onBoth, startServer } from './servers.mjs';

test('a majority of servers grants a lock with growing fences', { timeout: 60_000 }, async () => {
  const three = await Promise.all([startServer(), startServer(), startServer()]);
  const hosts = three.map((server) => new URL(server.url).host).join(',');
  const [one, other] = await Promise.all([connect(`redis+quorum://${hosts}`), connect(`redis+quorum://${hosts}`)]);
  const first = await one.lock('stock', { lease: '2s' }).acquire();
  await assert.rejects(other.lock('stock').tryAcquire(), LockTimeoutError);
  await first.release();
  await three[1].kill();
  const second = await other.lock('stock', { lease: '2s' }).acquire();
  assert.ok(second.fence > first.fence);
  await second.release();
  assert.throws(() => one.limiter('api', { limit: 1, period: '1s' }), /exclusive locks only/);
  const both = await one.locks(['b', 'a'], { lease: '2s' }).acquire();
  assert.ok(both.isHeld);
  await both.release();
  await Promise.all([one.shutdown(1_000), other.shutdown(1_000)]);
});

/** Lost before: a thread that was answered at once asked only as many servers as it needed. */
test('a released lock is free at every server', { timeout: 60_000 }, async () => {
  const five = await Promise.all(Array.from({ length: 5 }, () => startServer()));
  const client = await connect(`redis+quorum://${five.map((server) => new URL(server.url).host).join(',')}`);
  const names = Array.from({ length: 400 }, (_, at) => `row-${at}`);
  for (const [at, name] of names.entries()) {
    const held = await client.lock(name, { lease: '60s' }).acquire();
    await new Promise((resolve) => { setTimeout(resolve, at % 4); });
    await held.release();
  }
  const isHeld = async (server, name) => JSON.stringify(await server.say('RES.LOCK', 'INFO', `resil:lock:{${name}}`)).includes('exclusive');
  const until = Date.now() + 5_000;
  for (const name of names) {
    for (const server of five) {
      while (await isHeld(server, name)) assert.ok(Date.now() < until, `${name} is held at ${server.port}, by nobody`);
    }
  }
  await client.shutdown(1_000);
});

onBoth(test, 'several locks are all held or none', async (client, prefix) => {
  const [a, b] = ['a', 'b'].map((id) => `${prefix}${id}`);
  const both = client.locks([b, a], { wait: 50 });
  assert.deepEqual(both.names, [a, b]);
  const held = await both.acquire();
  assert.ok(held.isHeld && held.fences.every((fence) => fence > 0n));
  held.ensure();
  await held.release();
  assert.equal(held.isHeld, false);
  const taken = await client.lock(b).acquire();
  await assert.rejects(both.acquire(), LockTimeoutError);
  await (await client.lock(a).tryAcquire()).release();
  await taken.release();
  assert.throws(() => client.locks([a, a]), /twice/);
  assert.throws(() => client.locks('ab'), /names must be a list/);
  assert.equal(client.lockName('bank', 'account', '7'), 'lock:bank:account:7');
  assert.throws(() => client.lockName('a:b', 'c', 'd'), /domain/);
});
