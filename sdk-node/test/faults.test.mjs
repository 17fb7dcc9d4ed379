/** On a real server's bad days: killed and back under load, stopped, holders that are killed. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { LockTimeoutError, ResilError, connect } from 'resil';
import { startServer } from './servers.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));

async function until(what, isSo) {
  const end = performance.now() + 30_000;
  while (!isSo()) {
    assert.ok(performance.now() < end, `it never came to that: ${what}`);
    await sleep(10);
  }
}

test('a server killed and restarted is noticed and used', { timeout: 90_000 }, async () => {
  const server = await startServer();
  const client = await connect(server.url, { commandTimeout: 300 });
  const limiter = client.limiter('api', { limit: 1_000_000, period: '1s' });
  const closed = client.limiter('closed', { limit: 1_000_000, period: '1s', whenAway: 'closed' });
  const lock = client.lock('x', { wait: 200 });
  const bank = client.breaker('bank');
  const users = client.cached('user', { ttl: 50 });
  const payments = client.idempotent('payments', { wait: 100 });
  const seen = new Set();
  const codes = new Set();
  let isOver = false;
  let number = 0;
  const attempt = async (call) => {
    try {
      await call();
    } catch (error) {
      assert.ok(error instanceof ResilError, `what comes out is one of ours: ${error}`);
      codes.add(error.code);
    }
  };
  const ask = async () => {
    while (!isOver) {
      await attempt(async () => seen.add((await limiter.check('all')).decidedBy));
      await attempt(() => closed.acquire('all'));
      await attempt(() => lock.call(() => sleep(1)));
      await attempt(() => bank.call(() => 1));
      await attempt(async () => assert.equal(await users.get('ann', () => 'Ann'), 'Ann'));
      number += 1;
      await attempt(() => payments.run(`order-${number}`, undefined, () => 'paid'));
      await sleep(1);
    }
  };
  const tasks = Array.from({ length: 8 }, ask);
  await until('the server decides', () => seen.has('server'));
  await server.kill();
  await until('this process decides by itself', () => seen.has('local'));
  await until('what is closed is refused', () => codes.has('BACKEND_UNAVAILABLE'));
  assert.equal(client.health().overall, 'unhealthy');
  await server.restart();
  await until('it is healthy again', () => client.health().overall === 'healthy');
  seen.clear();
  await until('the server decides again', () => seen.has('server'));
  isOver = true;
  await Promise.all(tasks);
  for (const code of codes) {
    const known = ['BACKEND_UNAVAILABLE', 'LOCK_TIMEOUT', 'LOCK_LOST', 'TIMEOUT', 'IDEMPOTENCY_BUSY'];
    assert.ok(known.includes(code), `${code} is not what a server that is away means`);
  }
  await client.shutdown('2s');
  await server.stop();
});

test('a stalled server costs at most the command timeout', { timeout: 60_000 }, async () => {
  const server = await startServer();
  const client = await connect(server.url, { commandTimeout: 250 });
  const limiter = client.limiter('api', { limit: 10, period: '1s', whenAway: 'closed' });
  assert.ok((await limiter.check('ann')).isGranted);
  await server.pause();
  const began = performance.now();
  await assert.rejects(limiter.check('ann'), { code: 'BACKEND_UNAVAILABLE' });
  assert.ok(performance.now() - began < 5_000, 'it was not waited for the server');
  await server.resume();
  await until('it is healthy again', () => client.health().overall === 'healthy');
  await client.shutdown('1s');
  await server.stop();
});

const HOLDER = `
  import { connect } from 'resil';
  const client = await connect(process.argv[1]);
  const held = await client.lock('stock', { lease: '60s' }).acquire();
  console.log('holds', held.fence);
  setInterval(() => held.isHeld, 1_000);
`;

test('a killed holder costs others moments, not its lease', { timeout: 60_000 }, async () => {
  const server = await startServer();
  const holder = spawn(process.execPath, ['--input-type=module', '-e', HOLDER, server.url], { cwd: here, stdio: ['ignore', 'pipe', 'inherit'] });
  const client = await connect(server.url);
  try {
    const [said] = await once(holder.stdout, 'data');
    assert.match(String(said), /^holds \d+/);
    await assert.rejects(client.lock('stock').tryAcquire(), LockTimeoutError);
    holder.kill('SIGKILL');
    const began = performance.now();
    const held = await client.lock('stock', { wait: '30s' }).acquire();
    assert.ok(performance.now() - began < 10_000, 'not after the whole lease');
    await held.release();
  } finally {
    holder.kill('SIGKILL');
    await client.shutdown('1s');
    await server.stop();
  }
});
