/** Dead letters on a real server: killed under a loop and under a stream, a replica that is away, handlers that misbehave. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { BackendUnavailableError, connect, TimeoutError } from 'resil';
import { startServer } from './servers.mjs';

/** Longer than anything here takes, on a machine that has much else to do. */
const BOUND = 40_000;

async function ledger(server, options = {}) {
  const client = await connect(server.url, { commandTimeout: 1000 });
  const letters = client.deadLetters('orders', { actor: 'ada', wait: 1000, lease: 2000, grace: 300, ...options });
  await letters.configure({ jitter: 'none', crashes: 100, transient: { base: 100, cap: 100, retries: 100 } });
  return { client, letters };
}

async function until(what, isSo) {
  const end = Date.now() + BOUND;
  while (!(await isSo())) {
    assert.ok(Date.now() < end, `waited in vain until ${what}`);
    await sleep(20);
  }
}

/** Says it until somebody has heard it. */
const failed = (letters, id) =>
  until('it is failed', () =>
    letters.fail(id, 'timeout', { payload: id }).then(
      () => true,
      (error) => {
        assert.ok(error instanceof BackendUnavailableError || error instanceof TimeoutError, error);
        return false;
      },
    ));

async function allDone(letters, ids) {
  await until('all are done', async () => (await letters.info()).entries === 0);
  for (const id of ids) assert.equal(await letters.standing(id), 'done');
}

test('a loop and a stream go on after a kill', async () => {
  const server = await startServer({ config: { appendonly: 'yes', appendfsync: 'always' } });
  const { client, letters } = await ledger(server, { concurrency: 4 });
  const seen = new Set();
  const loop = letters.run(async (message) => {
    await sleep(10);
    seen.add(message.id);
  });
  const stream = (async () => {
    for (;;) {
      try {
        for await (const letter of letters.entries()) {
          seen.add(letter.id);
          await letter.done();
        }
        return;
      } catch (error) {
        assert.ok(['BACKEND_UNAVAILABLE', 'TIMEOUT', 'LOCK_LOST'].includes(error.code), error);
      }
    }
  })();
  const ids = Array.from({ length: 30 }, (_, at) => String(at));
  for (const [at, id] of ids.entries()) {
    await failed(letters, id);
    if (at % 10 === 9) await server.restart();
  }
  await until('all are seen', () => seen.size === ids.length);
  await allDone(letters, ids);
  await client.shutdown(5000);
  await Promise.all([loop, stream]);
  await server.stop();
});

test('an unsafe failure is an error that says so', async () => {
  const server = await startServer();
  const replica = await server.replica();
  const { client, letters } = await ledger(server, { replicas: 1 });
  assert.equal((await letters.fail('1', 'timeout')).verdict, 'retry');
  const [letter] = await letters.take({ wait: 5000 });
  await replica.pause();
  const unsafe = { code: 'BACKEND_UNAVAILABLE', message: /do not acknowledge/ };
  await assert.rejects(letters.fail('2', 'timeout', { payload: '2' }), unsafe);
  await assert.rejects(letters.fail('2', 'timeout', { payload: '2' }), unsafe, 'the primary knows it by now');
  await assert.rejects(letter.fail('again'), unsafe);
  await replica.resume();
  await failed(letters, '2');
  assert.equal(await replica.say('RES.DLQ', 'GET', 'resil:dlq:{orders}', '2', 'STATE'), 'waiting');
  await client.shutdown(5000);
  await replica.stop();
  await server.stop();
});

test('whatever a handler throws counts', async () => {
  const server = await startServer();
  const { client, letters } = await ledger(server);
  await letters.configure({ transient: { retries: 2 } });
  const thrown = [new Error('x'), undefined, null, 'text', 7, Symbol('s'), Object.create(null)];
  for (const id of thrown.keys()) await letters.fail(String(id), 'timeout');
  const loop = letters.run((message) => {
    throw thrown[Number(message.id)];
  });
  await until('all are dead', async () => (await letters.info()).dead === thrown.length);
  await client.shutdown(5000);
  assert.equal((await loop).failed, 2 * thrown.length);
  await server.stop();
});

test('a handler that keeps the thread keeps its message', async () => {
  const server = await startServer();
  const { client } = await ledger(server);
  const letters = client.deadLetters('orders', { wait: 500, lease: 500, grace: 300 });
  await letters.fail('1', 'timeout');
  const fences = [];
  const loop = letters.run((message) => {
    fences.push(message.fence);
    const end = Date.now() + 1500;
    while (Date.now() < end);
  });
  await allDone(letters, ['1']);
  await client.shutdown(5000);
  assert.deepEqual([(await loop).done, fences.length], [1, 1]);
  await server.stop();
});
