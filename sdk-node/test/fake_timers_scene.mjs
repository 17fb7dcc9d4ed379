/** A program with fake timers in place, which would stand still if they were Resil's. Its argument says which; see fake_timers.test.mjs. */
import assert from 'node:assert/strict';
import { mock } from 'node:test';
import FakeTimers from '@sinonjs/fake-timers';

import { TimeoutError, bulkhead, connect, handleAll, perHour, retry, timeout, wrap } from 'resil';
import { Clock } from 'resil/testing';

const [realTimeout, clearReal] = [setTimeout, clearTimeout];
const realSettled = (promise) => {
  let timer;
  const late = new Promise((_, reject) => { timer = realTimeout(() => reject(new Error('nothing came of it')), 10_000); });
  return Promise.race([promise, late]).finally(() => clearReal(timer));
};

/** Each is put in place, and taken away again. */
const fakes = {
  node: () => {
    mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'setImmediate', 'Date'] });
    return { tick: (ms) => mock.timers.tick(ms), restore: () => mock.timers.reset() };
  },
  sinon: () => {
    const clock = FakeTimers.install({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'setImmediate', 'clearImmediate', 'Date', 'performance', 'hrtime', 'nextTick', 'queueMicrotask'] });
    return { tick: (ms) => clock.tick(ms), restore: () => clock.uninstall() };
  },
};

const put = fakes[process.argv[2]];

/** Calls come to their end, and nobody ticks. */
async function undriven() {
  const client = await connect('memory://');
  const fake = put();
  try {
    for (const guard of [client.breaker('b'), retry({ on: handleAll }), timeout(1_000), bulkhead({ maxConcurrentCalls: 2 }), client.lock('l'), wrap(client.breaker('c'), timeout(1_000)), client.policy('p', { timeout: { total: 1_000 }, sharedBulkhead: { maxConcurrentCalls: 1 } })]) {
      for (let run = 0; run < 3; run += 1) assert.equal(await realSettled(guard.call(async () => 'done')), 'done');
    }
    assert.equal(await realSettled(client.cached('c').get('k', async () => 1)), 1);
    assert.equal((await realSettled(client.idempotent('i').run('k', undefined, async () => 1))).value, 1);
    assert.ok((await realSettled(client.limiter('l', perHour(1)).check('ann'))).isGranted);
    let runs = 0;
    await realSettled(retry({ on: handleAll, initialBackoff: 5 }).call(() => { if (++runs < 3) throw new Error('x'); }));
    await assert.rejects(realSettled(timeout(20).call(() => new Promise(() => {}))), TimeoutError, 'a timeout is of the real time');
    await realSettled(client.shutdown());
  } finally {
    fake.restore();
  }
}

/** Time is that of the clock, and of nothing else. */
async function driven() {
  const clock = Clock.driven();
  const client = await connect('memory://', { clock });
  const fake = put();
  try {
    const limiter = client.limiter('l', perHour(1));
    assert.deepEqual([(await realSettled(limiter.check('ann'))).isGranted, (await realSettled(limiter.check('ann'))).isGranted], [true, false]);
    fake.tick(3_600_000);
    assert.equal((await realSettled(limiter.check('ann'))).isGranted, false, 'the fake timers are not its clock');
    clock.advance('1h');
    assert.equal((await realSettled(limiter.check('ann'))).isGranted, true);

    const late = timeout({ after: '1m', clock }).call(() => new Promise(() => {})).catch((error) => error);
    while (clock.nextWakeMs === null) await new Promise((resolve) => realTimeout(resolve, 1));
    clock.advance('1m');
    assert.ok((await realSettled(late)) instanceof TimeoutError);
  } finally {
    fake.restore();
  }
  await realSettled(client.shutdown(0));
}

await undriven();
await driven();
console.log('done');
