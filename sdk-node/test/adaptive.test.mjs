/** What a policy of code refuses by itself, in one process: throttling, shedding, chaos, and places that adapt. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { connect, handleAll } from 'resil';
import { Clock } from 'resil/testing';

const LATER = '2199-01-01T00:00:00Z';
const down = () => { throw new Error('down'); };
const forever = () => new Promise(() => {});

/** The code and the layer of a refusal, or `made`. */
async function cameTo(call) {
  try {
    await call;
    return 'made';
  } catch (error) {
    return error.code === 'REFUSED' ? /throttle|shed|chaos/.exec(error.message)?.[0] : (error.code ?? error.message);
  }
}

test('a dead callee is throttled to a call a second', async () => {
  const clock = Clock.driven();
  const client = await connect('memory://', { clock });
  const policy = client.policy('throttled', { throttle: { k: 1.5, window: '10s' } });
  const ends = { throttle: 0, down: 0 };
  for (let call = 0; call < 200; call += 1) ends[await cameTo(policy.call(down))] += 1;
  assert.equal(ends.throttle + ends.down, 200);
  assert.ok(ends.throttle > 150, `${ends.throttle} of 200`);
  clock.advance('1s');
  assert.equal(await policy.call(() => 7), 7);
  await client.shutdown();
});

test('less important calls are shed first', async () => {
  const client = await connect('memory://');
  const policy = client.policy('shedding', { bulkhead: { maxConcurrentCalls: 10 }, shedding: {} });
  const leaving = new AbortController();
  const inside = Array.from({ length: 7 }, () => policy.call(forever, { priority: 'critical', signal: leaving.signal }));
  const seen = {};
  for (const priority of ['background', 'low', 'normal', 'high', 'critical']) seen[priority] = await cameTo(policy.call(() => 7, { priority }));
  assert.deepEqual(seen, { background: 'shed', low: 'shed', normal: 'made', high: 'made', critical: 'made' });
  leaving.abort();
  await Promise.allSettled(inside);
  assert.equal(await policy.call(() => 7, { priority: 'background' }), 7);
  assert.throws(() => client.policy('shedding', { shedding: {} }), /shedding needs a bulkhead/);
  await client.shutdown();
});

test('chaos fails, delays and loses calls until it ends', async () => {
  const client = await connect('memory://');
  let made = 0;
  const struck = async (chaos, options) => {
    const begun = performance.now();
    made = 0;
    const ended = await cameTo(client.policy('struck', { on: handleAll, ...options, chaos: { percent: 100, until: LATER, ...chaos } }).call(() => { made += 1; }));
    return [ended, made, performance.now() - begun >= 29];
  };
  assert.deepEqual(await struck({ kind: 'error' }), ['chaos', 0, false]);
  assert.deepEqual(await struck({ kind: 'drop' }), ['chaos', 1, false], 'it was made, and its reply is lost');
  assert.deepEqual(await struck({ kind: 'latency', latency: '30ms' }), ['made', 1, true]);
  assert.deepEqual(await struck({ kind: 'error', until: '2020-01-01T00:00:00Z' }), ['made', 1, false], 'it is over');
  assert.deepEqual(await struck({ kind: 'error', subjects: ['ann'] }), ['made', 1, false], 'another subject');
  assert.equal((await struck({ kind: 'error' }, { retry: { maxAttempts: 2, initialBackoff: '1us' } }))[0], 'RETRY_EXHAUSTED');
  await client.shutdown();
});

test('places shrink with failures, and grow back', async () => {
  const client = await connect('memory://');
  const policy = client.policy('adapting', { bulkhead: { maxConcurrentCalls: 20, adaptive: { kind: 'aimd', min: 2 } } });
  const atOnce = async () => {
    const leaving = new AbortController();
    const all = Array.from({ length: 20 }, () => cameTo(policy.call(forever, { signal: leaving.signal })));
    leaving.abort();
    return (await Promise.all(all)).filter((ended) => ended === 'CANCELLED').length;
  };
  assert.equal(await atOnce(), 20);
  for (let call = 0; call < 1_000; call += 1) await cameTo(policy.call(down));
  assert.equal(await atOnce(), 2, 'never below its least');
  for (let call = 0; call < 3_000; call += 1) await Promise.all([cameTo(policy.call(async () => 1)), cameTo(policy.call(async () => 2))]);
  assert.ok(await atOnce() > 2);
  await client.shutdown();
});
