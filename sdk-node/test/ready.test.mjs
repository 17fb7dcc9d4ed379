/** A server that is not there yet, and traces: what a service says when it starts, and what it leaves behind for those who look into an incident. */
import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import { spawn } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ROOT_CONTEXT, context, trace } from '@opentelemetry/api';

import { BackendUnavailableError, connect, handleAll, perHour, perSecond, rateLimitHeaders, retry, timeout, wrap } from 'resil';
import { Script } from 'resil/testing';
import { onBoth, startServer } from './servers.mjs';
import { settled } from './waiting.mjs';

const NOWHERE = 'redis://127.0.0.1:1';

test('a client that requires a server fails without one', async () => {
  const error = await settled(connect(NOWHERE, { requireServer: true, commandTimeout: 500 })).catch((caught) => caught);
  assert.ok(error instanceof BackendUnavailableError, String(error));
  const client = await connect((await startServer()).url, { requireServer: true });
  assert.equal(client.health().overall, 'healthy');
  await client.shutdown(0);
});

test('a caller that waits for readiness continues with the server', async () => {
  const server = await startServer();
  await server.kill();
  const client = await connect(server.url, { commandTimeout: 500 });
  await assert.rejects(client.waitReady('200ms'), BackendUnavailableError);
  const { overall, reason, since } = client.health();
  assert.equal(overall, 'unhealthy');
  assert.ok(reason.length > 0 && !reason.includes('127.0.0.1'), reason);
  assert.ok(since instanceof Date && since <= new Date());
  const ready = client.waitReady('30s');
  await server.restart();
  await settled(ready, 30_000);
  assert.deepEqual([client.health().overall, client.health().reason], ['healthy', undefined]);
  await client.shutdown(0);
});

test('a process ends silent but for an absent server', async () => {
  for (const url of [NOWHERE, (await startServer()).url, 'memory://']) {
    const source = `import { connect, perSecond } from 'resil';
      const client = await connect(process.argv[1], { commandTimeout: 300 });
      await client.limiter('l', perSecond(5)).check('a');
      console.log('end');`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', source, '--', url], { cwd: fileURLToPath(new URL('.', import.meta.url)), stdio: ['ignore', 'pipe', 'pipe'] });
    let [out, err] = ['', ''];
    child.stdout.on('data', (data) => { out += data; });
    child.stderr.on('data', (data) => { err += data; });
    const code = await settled(new Promise((resolve) => { child.on('close', resolve); }), 30_000).finally(() => child.kill('SIGKILL'));
    assert.deepEqual([code, out.trim()], [0, 'end']);
    if (url === NOWHERE) assert.match(err, /^\(node:\d+\) \[RESIL_AWAY\] ResilWarning: [^\n]*\n\(Use [^\n]*\n$/);
    else assert.equal(err, '');
  }
});

const ID = '0af7651916cd43dd8448eb211c80319c';
const PARENT = `00-${ID}-b7ad6b7169203331-01`;

/** The smallest context manager: what an SDK of OpenTelemetry sets up. */
class Contexts {
  storage = new AsyncLocalStorage();
  active() { return this.storage.getStore() ?? ROOT_CONTEXT; }
  with(where, fn, self, ...args) { return this.storage.run(where, () => fn.apply(self, args)); }
  bind(where, target) { return typeof target === 'function' ? (...args) => this.with(where, target, undefined, ...args) : target; }
  enable() { return this; }
  disable() { this.storage.disable(); return this; }
}

test('reports to a breaker carry their call’s trace', async () => {
  context.setGlobalContextManager(new Contexts());
  try {
    const inTrace = (fn) => context.with(trace.setSpanContext(context.active(), { traceId: ID, spanId: 'b7ad6b7169203331', traceFlags: 1 }), fn);
    // Admitted under a permit of the server: such reports are sent each by itself.
    const sent = async (run) => {
      const script = new Script().reply([1, 'half-open', '1.1.1.1', 0, 1]);
      const client = script.connect();
      const breaker = client.breaker('b', { mode: 'exact', consecutiveFailures: 1 });
      await run(breaker).catch(() => {});
      await new Promise((resolve) => { setTimeout(resolve, 50); });
      return script.asked.flat();
    };
    const boom = async () => { throw new Error('x'); };
    const calls = [
      (breaker) => inTrace(() => breaker.call(boom)),
      (breaker) => inTrace(() => wrap(retry({ on: handleAll, maxAttempts: 1 }), breaker, timeout(1_000)).call(boom)),
    ];
    for (const call of calls) assert.ok((await sent(call)).includes(PARENT), `${call}`);
    assert.ok(!(await sent((breaker) => breaker.call(boom))).includes(PARENT), 'without a trace there is none');
  } finally {
    context.disable();
  }
});

onBoth(test, 'a verdict carries every tier, headers the binding one', async (client, name) => {
  const limiter = client.limiter(name, { ...perSecond(100), tiers: [{ limit: 2, period: '1h' }] });
  const first = await limiter.check('ann');
  assert.deepEqual(first.tiers.map(({ limit, periodMs, capacity, remaining }) => [limit, periodMs, capacity, remaining]), [[100, 1_000, 100, 99], [2, 3_600_000, 2, 1]]);
  assert.deepEqual([first.binding, first.limit, first.periodMs, first.remaining], [1, 2, 3_600_000, 1]);
  await limiter.check('ann');
  const refused = await limiter.check('ann');
  assert.deepEqual([refused.isGranted, refused.binding, refused.tiers.length], [false, 1, 2]);
  const headers = rateLimitHeaders('api', refused);
  assert.equal(headers['ratelimit-policy'], '"api-1s";q=100;w=1, "api-1h";q=2;w=3600');
  assert.match(headers.ratelimit, /^"api-1h";r=0;t=\d+$/);
  assert.ok(Number(headers['retry-after']) > 0);
  const one = await client.limiter(`${name}1`, perHour(5, { burst: 10 })).check('ann');
  assert.deepEqual([one.limit, one.periodMs, one.capacity, one.windowMs, one.tiers, one.binding], [5, 3_600_000, 10, 7_200_000, [], 0]);
  assert.equal(rateLimitHeaders('api', one)['ratelimit-policy'], '"api";q=10;w=7200');
});

onBoth(test, 'handles of one name share what is shared', async (client, name) => {
  let runs = 0;
  const slowly = async () => { runs += 1; await new Promise((resolve) => { setTimeout(resolve, 30); }); return runs; };
  const outcomes = await Promise.all(Array.from({ length: 5 }, () => client.idempotent('handles').run(name, undefined, slowly)));
  assert.deepEqual([runs, outcomes.filter(({ replayed }) => replayed).length], [1, 4]);
  runs = 0;
  assert.deepEqual(await Promise.all(Array.from({ length: 5 }, () => client.cached('handles').get(name, slowly))), [1, 1, 1, 1, 1]);
});
