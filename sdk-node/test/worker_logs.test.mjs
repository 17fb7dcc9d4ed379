/** What process warnings say of workers: messages that died, and sources and publishers whose broker is away. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { connect, telemetry, WorkError } from 'resil';
import { startServer } from './servers.mjs';

/** Longer than anything here takes, on a machine that has much else to do. */
const BOUND = 60_000;
const SECRET = 'hunter2-never-logged';

async function until(what, isSo) {
  const end = Date.now() + BOUND;
  while (!(await isSo())) {
    assert.ok(Date.now() < end, `waited in vain until ${what}`);
    await sleep(20);
  }
}

/** Warnings of this package while `work` runs. */
async function warningsOf(work) {
  const warnings = [];
  const hear = (warning) => { if (warning.name === 'ResilWarning') warnings.push(warning); };
  process.on('warning', hear);
  try {
    await work(warnings);
  } finally {
    process.off('warning', hear);
  }
  return warnings;
}

async function running(worker, handler, work) {
  const run = worker.run(handler);
  try {
    await work();
  } finally {
    worker.stop();
    await run;
  }
}

const of = (warnings, code) => warnings.filter((warning) => warning.code === code);

test('each dead message is a warning in the log', async () => {
  const dead = [];
  const hooks = telemetry.hooks({ only: 'orders', onDead: (said) => dead.push(said) });
  const warnings = await warningsOf(async (seen) => {
    const client = await connect('memory://');
    for (const number of [1, 2]) await client.deadLetters('orders').fail(`shop/${number}`, 'sent', { payload: 'x', count: 'not-counted' });
    const handle = async () => { throw new WorkError(SECRET, 'permanent'); };
    await running(client.worker('orders'), handle, () => until('both are logged', () => of(seen, 'RESIL_DEAD').length === 2 && dead.length === 2));
  });
  hooks.close();
  const said = of(warnings, 'RESIL_DEAD').map(({ message }) => message.split(' is dead')[0]).sort();
  assert.deepEqual(said, ['orders: the message shop/1', 'orders: the message shop/2']);
  assert.ok(!warnings.some(({ message }) => message.includes(SECRET)));
  const reported = dead.map(({ name, id, deaths, reason }) => [name, id, deaths, reason]).sort();
  assert.deepEqual(reported, [['orders', 'shop/1', 1, 'final'], ['orders', 'shop/2', 1, 'final']]);
});

for (const source of [
  { type: 'rabbit', url: `amqp://shop:${SECRET}@127.0.0.1:1`, queue: 'orders' },
  { type: 'outbox', url: `postgres://shop:${SECRET}@127.0.0.1:1/shop`, table: 'orders' },
  { type: 'stream', url: `redis://:${SECRET}@127.0.0.1:1`, stream: 'orders' },
]) {
  test(`a ${source.type} source that is away is one warning`, async () => {
    const heard = [];
    const hooks = telemetry.hooks({ onAway: (said) => heard.push(said) });
    const warnings = await warningsOf(async (seen) => {
      const client = await connect('memory://');
      await running(client.worker('orders', { source }), async () => {}, async () => {
        await until('it is logged', () => of(seen, 'RESIL_AWAY').length > 0 && heard.length > 0);
        // Attempts go on, and are not said again.
        await sleep(1_000);
      });
    });
    hooks.close();
    const [line, ...others] = of(warnings, 'RESIL_AWAY');
    assert.equal(others.length, 0);
    assert.match(line.message, /^orders: the broker 127\.0\.0\.1:1 is away/);
    assert.ok(!JSON.stringify([heard, warnings.map(({ message }) => message)]).includes(SECRET));
    assert.deepEqual(heard.map(({ address }) => address), ['127.0.0.1:1']);
  });
}

test('a source that is back is one line', async () => {
  const server = await startServer();
  const warnings = await warningsOf(async (seen) => {
    const client = await connect('memory://');
    const worker = client.worker('orders', { source: { type: 'stream', url: server.url, stream: 'orders' } });
    await running(worker, async () => {}, async () => {
      await until('it is connected', () => worker.health().source?.isConnected);
      for (const away of [1, 2]) {
        await server.kill();
        await until('it is away', () => of(seen, 'RESIL_AWAY').length === away);
        await server.restart();
        await until('it is back', () => of(seen, 'RESIL_BACK').length === away);
      }
    });
  });
  assert.deepEqual([of(warnings, 'RESIL_AWAY').length, of(warnings, 'RESIL_BACK').length], [2, 2]);
});
