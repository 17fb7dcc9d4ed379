/**
 * Secrets in every place that takes one, and none of them in what the SDK says: channels, warnings, metrics, errors, `util.inspect`.
 *
 * Names of handles, and ids of messages, are no secrets: operators find things by them.
 */
import assert from 'node:assert/strict';
import { subscribe } from 'node:diagnostics_channel';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';

import { WorkError, connect, perHour, telemetry } from 'resil';
import { startServer } from './servers.mjs';

/** In every secret; and the same as `inspect` shows bytes. */
const SECRET = /hunter2|68 75 6e 74 65 72 32/;

const lines = [];
const shown = (what, ...values) => {
  for (const value of values) {
    lines.push(`${what}: ${inspect(value, { depth: 6, showHidden: true })} ${String(value)}`);
  }
};

async function until(what, isSo) {
  const end = Date.now() + 30_000;
  while (!isSo()) {
    assert.ok(Date.now() < end, `${what} does not happen`);
    await sleep(10);
  }
}

async function refused(what, work) {
  await assert.rejects(async () => work(), (error) => {
    shown(what, error, error.cause);
    lines.push(`${what}: ${error.message} ${error.stack}`);
    return true;
  });
}

/** Messages with secrets in payload and aggregate, whose handlers fail, drop and give up with secrets in their errors. */
async function work(client) {
  const letters = client.deadLetters('orders');
  const fates = ['done', 'retried', 'dead', 'dropped'];
  for (const fate of fates) {
    await letters.fail(fate, 'hunter2-first-error', { payload: `${fate} hunter2-payload`, aggregate: 'hunter2-customer', count: 'not-counted' });
  }
  const handled = new Set();
  const worker = client.worker('orders', { source: { type: 'ledger', name: 'orders' } });
  const running = worker.run(async (message) => {
    shown('a message', message);
    const fate = message.id.split('/').pop();
    handled.add(fate);
    if (fate === 'retried') throw new TypeError('hunter2-error');
    if (fate === 'dead') throw new WorkError('hunter2-error', 'permanent');
    if (fate === 'dropped') throw new WorkError('hunter2-error', 'drop');
  });
  await until('all are handled', () => fates.every((fate) => handled.has(fate)));
  shown('a worker', worker, worker.health(), letters);
  worker.stop();
  shown('its report', await running);
}

/** Brokers and databases that are not there, with passwords in their addresses. */
async function connectElsewhere(client) {
  const places = [
    { type: 'rabbit', url: 'amqp://shop:hunter2@127.0.0.1:1/%2f', queue: 'orders' },
    { type: 'outbox', url: 'postgres://shop:hunter2@127.0.0.1:1/shop', table: 'orders' },
  ];
  for (const source of places) {
    const worker = client.worker('elsewhere', { source });
    const running = worker.run(() => {});
    await until('it is tried', () => worker.health().source?.reason !== undefined);
    shown('a worker', worker, worker.health());
    worker.stop();
    await running;
  }
  for (const url of ['ftp://shop:hunter2@h/', 'shop:hunter2', 'redis://shop:hunter2@:x']) {
    await refused('a wrong server', () => connect(url));
  }
  await refused('no server', () => connect('redis://shop:hunter2@127.0.0.1:1', { requireServer: true }));
}

/** Primitives and policies, with secrets as keys, metadata, bodies and values. */
async function guard(client) {
  const limiter = client.limiter('api', perHour(1));
  await limiter.check('hunter2-key');
  await refused('a limit', () => limiter.acquire('hunter2-key'));
  const pay = client.idempotent('pay', { wait: 0 });
  await pay.run('hunter2-key', 'hunter2-body', async () => 'hunter2-result');
  await refused('another request', () => pay.run('hunter2-key', 'hunter2-other', async () => 'x'));
  await client.policies.set('pay', { retry: { maxAttempts: 2, initialBackoff: '1ms' } });
  const policy = await client.policy('pay', { on: () => true });
  // The error quotes the caller's own, for the caller; nothing else that is said of it does.
  await assert.rejects(policy.call(() => { throw new TypeError('hunter2-error'); }), { code: 'RETRY_EXHAUSTED' });
  await client.lock('hunter2-lock', { meta: 'hunter2-meta' }).call((held) => shown('what is held', held));
  const users = client.cached('users', { ttl: '60s' });
  await users.get('hunter2-key', async () => 'hunter2-value');
  shown('handles', limiter, pay, policy, users, client, client.health());
}

test('no secret is in anything that is said', async () => {
  const warned = (warning) => lines.push(`${warning.code} ${warning.message}`);
  process.on('warning', warned);
  // `onDrop` gets the reason of the handler, which is the handler's: it is no log.
  for (const kind of ['call', 'beforeSleep', 'onTimeout', 'onOpen', 'onLost', 'onAway', 'onRefused', 'onBack']) {
    subscribe(`resil:${kind}`, (said) => shown(kind, said));
  }
  const server = await startServer({ config: [['requirepass', 'hunter2-password']] });
  const client = await connect(server.url.replace('redis://', 'redis://:hunter2-password@'), { name: 'shop' });
  await work(client);
  await connectElsewhere(client);
  await guard(client);
  await client.shutdown();
  shown('counts', telemetry.metrics());
  await sleep(50);
  process.off('warning', warned);
  assert.ok(lines.length > 40, `${lines.length}`);
  assert.deepEqual(lines.filter((line) => SECRET.test(line)), []);
});
