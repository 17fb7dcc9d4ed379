/** Metrics, spans, channels and hooks: the scene of tests/telemetry_scene.json, and what goes wrong with functions of users. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';

import { connect, handleAll, hedge, retry, telemetry, timeout } from 'resil';
import { startServer } from './servers.mjs';

const scene = JSON.parse(readFileSync(new URL('../../tests/telemetry_scene.json', import.meta.url)));

async function until(what, isSo) {
  const end = Date.now() + 30_000;
  while (!isSo()) {
    assert.ok(Date.now() < end, `${what} does not happen`);
    await sleep(10);
  }
}

function series() {
  const text = (labels) => Object.entries(labels).map(([label, value]) => `${label}=${value}`).join(',');
  return Object.fromEntries(telemetry.metrics().map(({ metric, labels, value }) => [`${metric}{${text(labels)}}`, value]));
}

async function play(client, server) {
  const limit = client.limiter('scene', { limit: 2, period: '60s' });
  for (const granted of [true, true, false]) assert.equal((await limit.check('secret-key')).granted > 0, granted);
  let attempts = 0;
  await retry({ on: handleAll, initialBackoff: '1ms', name: 'scene' }).call(() => {
    attempts += 1;
    if (attempts === 1) throw new Error('secret-error');
  });
  let calls = 0;
  await hedge({ on: handleAll, hedgingDelay: '5ms', name: 'scene' }).call(async () => {
    calls += 1;
    if (calls === 1) await sleep(500);
  });
  await assert.rejects(timeout({ after: '5ms', name: 'scene' }).call(() => sleep(200)));
  const breaker = client.breaker('scene', { consecutiveFailures: 1 });
  await assert.rejects(breaker.call(() => { throw new Error('secret-error'); }));
  await breaker.state();
  await assert.rejects(breaker.call(() => {}), { code: 'CIRCUIT_OPEN' });
  await server.kill();
  await until('away', () => client.health().overall !== 'healthy');
  assert.ok((await limit.check('another')).granted > 0);
  await server.restart();
  await until('back', () => client.health().overall === 'healthy');
}

test('counts, hooks and warnings show the scene without a secret', async () => {
  const server = await startServer({ config: [['requirepass', 'secret-password']] });
  const warnings = [];
  const warned = (warning) => warnings.push(`${warning.code} ${warning.message}`);
  process.on('warning', warned);
  const heard = [];
  const kinds = ['beforeSleep', 'onHedge', 'onTimeout', 'onOpen', 'onAway', 'onBack'];
  const hooks = telemetry.hooks({ only: 'scene', ...Object.fromEntries(kinds.map((kind) => [kind, () => heard.push(kind)])) });
  const client = await connect(server.url.replace('redis://', 'redis://:secret-password@'), { name: 'scene' });
  await play(client, server);
  await until('every hook', () => heard.length >= kinds.length);
  hooks.close();
  const found = series();
  assert.deepEqual(Object.fromEntries(Object.keys(scene.expected).map((name) => [name, found[name]])), scene.expected);
  assert.deepEqual(heard.sort(), [...kinds].sort());
  await until('both warnings', () => warnings.some((line) => line.startsWith('RESIL_BACK')));
  assert.ok(warnings.some((line) => line.startsWith('RESIL_AWAY')));
  assert.doesNotMatch(JSON.stringify(found) + warnings.join(), /secret/);
  process.off('warning', warned);
  await client.shutdown();
});

test('hooks that throw, reject or ask again break nothing', async () => {
  const client = await connect('memory://');
  const limiter = client.limiter('hooked', { limit: 100, period: '60s' });
  const warnings = [];
  const warned = (warning) => warnings.push(warning.message);
  process.on('warning', warned);
  let asked = 0;
  const throwing = telemetry.hooks({ beforeSleep: () => { throw new RangeError('secret-text'); } });
  const rejecting = telemetry.hooks({ beforeSleep: async () => { throw new RangeError('secret-text'); } });
  const asking = telemetry.hooks({ beforeSleep: async () => { await limiter.check('inside'); asked += 1; throwing.close(); } });
  for (let at = 0; at < 3; at += 1) {
    await assert.rejects(retry({ on: handleAll, maxAttempts: 2, initialBackoff: '1ms', name: 'hooked' }).call(() => { throw new Error('x'); }));
  }
  await until('the third hook', () => asked === 3);
  for (const each of [throwing, rejecting, asking]) { each.close(); each.close(); }
  await sleep(20);
  const said = warnings.filter((line) => line.includes('beforeSleep'));
  assert.equal(said.length, 2);
  assert.doesNotMatch(said.join(), /secret/);
  process.off('warning', warned);
  assert.throws(() => telemetry.hooks({ onNothing: () => {} }), /is no hook/);
  assert.throws(() => telemetry.hooks({ onOpen: 3 }), /must be a function/);
});

test('a lock that is taken away is reported', async () => {
  const server = await startServer();
  const [client, other] = [await connect(server.url), await connect(server.url)];
  const heard = [];
  const hooks = telemetry.hooks({ onLost: (said) => heard.push(said) });
  const held = await client.lock('secret-42').acquire();
  assert.equal(await other.lock('secret-42').breakLock('ann', 'it hangs'), 1);
  await until('it is notified', () => heard.length > 0);
  await assert.rejects(held.release(), { code: 'LOCK_LOST' });
  hooks.close();
  assert.deepEqual(heard.map(({ primitive, name, reason }) => [primitive, name, reason]), [['lock', 'default', 'broken']]);
  assert.ok(series()['resil_lost_total{name=default,primitive=lock}'] >= 1);
  await client.shutdown();
  await other.shutdown();
});

test('a channel hears of calls while somebody is subscribed', async () => {
  const client = await connect('memory://');
  const limiter = client.limiter('channelled', { limit: 1, period: '60s' });
  const heard = [];
  const hear = (said) => heard.push(said);
  await limiter.check('before');
  subscribe('resil:call', hear);
  await limiter.check('secret-key');
  await limiter.check('secret-key');
  await until('two calls', () => heard.length >= 2);
  unsubscribe('resil:call', hear);
  await limiter.check('after');
  await sleep(20);
  assert.deepEqual(heard.map(({ primitive, name, outcome }) => [primitive, name, outcome]), [
    ['limiter', 'channelled', 'granted'], ['limiter', 'channelled', 'denied'],
  ]);
  assert.doesNotMatch(JSON.stringify(heard), /secret/);
});

test('a closed listener has heard of every call', async () => {
  const program = `
    const { connect, telemetry } = require(${JSON.stringify(new URL('../lib/index.js', import.meta.url).pathname)});
    const spans = [];
    const tracer = { startSpan: (name, { attributes }) => { spans.push(attributes.outcome); return { end() {}, setStatus() {} }; } };
    const meter = new Proxy({}, { get: () => () => ({ addCallback() {} }) });
    const given = { tracerProvider: { getTracer: () => tracer }, meterProvider: { getMeter: () => meter } };
    (async () => {
      const limiter = (await connect('memory://')).limiter('last', { limit: 2, period: '60s' });
      const switched = telemetry.instrument(given);
      await limiter.check('ann');
      switched.close();
      console.log(spans.join());
      telemetry.instrument(given);
      await limiter.check('ann');
      await limiter.check('ann');
      process.on('exit', () => console.log(spans.join()));
      process.exit();
    })();
  `;
  const { stdout } = await promisify(execFile)(process.execPath, ['-e', program], { cwd: new URL('..', import.meta.url) });
  assert.equal(stdout, 'granted\ngranted,granted,denied\n');
});

test('a worker thread hears of its own calls only', async () => {
  const program = `
    const { handleAll, telemetry, retry } = require(${JSON.stringify(new URL('../lib/index.js', import.meta.url).pathname)});
    const { parentPort } = require('node:worker_threads');
    const heard = [];
    telemetry.hooks({ beforeSleep: ({ name }) => heard.push(name) });
    retry({ on: handleAll, maxAttempts: 2, initialBackoff: '1ms', name: 'worker' }).call(() => { throw new Error('x'); }).catch(() => {});
    setTimeout(() => parentPort.postMessage(heard), 300);
  `;
  const heard = [];
  const hooks = telemetry.hooks({ beforeSleep: ({ name }) => heard.push(name) });
  const worker = new Worker(program, { eval: true });
  const reported = new Promise((resolve, reject) => { worker.on('message', resolve); worker.on('error', reject); });
  await assert.rejects(retry({ on: handleAll, maxAttempts: 2, initialBackoff: '1ms', name: 'main' }).call(() => { throw new Error('x'); }));
  assert.deepEqual(await reported, ['worker']);
  assert.deepEqual(heard, ['main']);
  hooks.close();
  await worker.terminate();
});

test('spans are children of the current span', async (t) => {
  let sdk; let api; let hooksModule;
  try {
    [sdk, api, hooksModule] = await Promise.all([import('@opentelemetry/sdk-trace'), import('@opentelemetry/api'), import('@opentelemetry/context-async-hooks')]);
  } catch {
    t.skip('OpenTelemetry is not installed');
    return;
  }
  const exporter = new sdk.InMemorySpanExporter();
  const broken = { export() { throw new Error('secret-exporter'); }, shutdown: async () => {}, forceFlush: async () => {} };
  const provider = new sdk.TracerProvider({ spanProcessors: [new sdk.SimpleSpanProcessor({ exporter }), new sdk.SimpleSpanProcessor({ exporter: broken })] });
  api.context.setGlobalContextManager(new hooksModule.AsyncLocalStorageContextManager().enable());
  const client = await connect('memory://');
  const limiter = client.limiter('spanned', { limit: 1, period: '60s' });
  const instrumented = telemetry.instrument({ tracerProvider: provider });
  const request = provider.getTracer('test').startSpan('request');
  await api.context.with(api.trace.setSpan(api.context.active(), request), async () => {
    await limiter.check('secret-key');
    await assert.rejects(limiter.acquire('secret-key'));
  });
  const mine = () => exporter.getFinishedSpans().filter(({ name }) => name === 'resil.limiter');
  await until('two spans', () => mine().length >= 2);
  instrumented.close();
  assert.deepEqual(mine().map(({ attributes }) => attributes.outcome), ['granted', 'denied']);
  for (const span of mine()) {
    assert.equal(span.spanContext().traceId, request.spanContext().traceId);
    assert.equal(span.parentSpanContext.spanId, request.spanContext().spanId);
  }
});

/** Rounds with and without take turns, so that what disturbs the machine disturbs both; the median of their ratios is compared. */
test('hooks and channels cost a limiter call a twentieth', async () => {
  const client = await connect((await startServer()).url);
  const limiter = client.limiter('cost', { limit: 1_000_000_000, period: '1s' });
  const took = async () => {
    const before = process.cpuUsage();
    for (let at = 0; at < 150; at += 1) await limiter.check('ann');
    const { user, system } = process.cpuUsage(before);
    return user + system;
  };
  const kinds = ['beforeSleep', 'onHedge', 'onTimeout', 'onOpen', 'onLost', 'onDrop', 'onAway', 'onBack'];
  const nothing = () => {};
  await took();
  const ratios = [];
  for (let round = 0; round < 40; round += 1) {
    const without = await took();
    const hooks = telemetry.hooks(Object.fromEntries(kinds.map((kind) => [kind, nothing])));
    for (const kind of kinds) subscribe(`resil:${kind}`, nothing);
    ratios.push((await took()) / without);
    hooks.close();
    for (const kind of kinds) unsubscribe(`resil:${kind}`, nothing);
  }
  const ratio = ratios.sort((one, other) => one - other)[ratios.length >> 1];
  assert.ok(ratio <= 1.05, `${ratio.toFixed(3)} of the processor time without`);
  await client.shutdown();
});
