/** What a fleet shares: the same in memory and on a server. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  CancelledError, CircuitOpenError, DeadlockError, IdempotencyMismatchError, InvalidArgumentError, LoadFailedError, LockLostError, LockTimeoutError, RateLimitExceededError, BulkheadFullError,
  ShuttingDownError, connect, handleAll, perHour, perSecond, timeout, wrap, retry,
} from 'resil';
import { Clock } from 'resil/testing';
import { onBoth } from './servers.mjs';
import { never, turn, until } from './waiting.mjs';

onBoth(test, 'a limit grants its amount, then says when', async (client, name) => {
  const limiter = client.limiter('api', perHour(2));
  assert.equal((await limiter.check(name)).remaining, 1);
  await limiter.acquire(name);
  const refused = await limiter.check(name);
  assert.ok(!refused.isGranted && refused.retryAfterMs > 0);
  const error = await limiter.acquire(name).catch((caught) => caught);
  assert.ok(error instanceof RateLimitExceededError && error.retryAfterMs > 0);
  assert.equal((await limiter.refund(name, 1)).granted, 1);
  assert.equal((await limiter.peek(name)).granted, 1);
  assert.equal((await limiter.upTo(name, 5)).granted, 1);
});

onBoth(test, 'several limits are taken from together or not at all', async (client, name) => {
  const [reads, all] = [client.limiter('reads', perHour(1)), client.limiter('all', perHour(9))];
  assert.ok((await client.checkAll([[reads, name], [all, name]])).isGranted);
  const refused = await client.checkAll([[reads, name], [all, name]]);
  assert.equal(refused.refusedBy, 0);
  assert.equal((await all.peek(name)).remaining, 8);
});

onBoth(test, 'a turn is booked and awaited unless too late', async (client, name) => {
  const limiter = client.limiter('turns', { limit: 1, period: '200ms' });
  await limiter.untilReady(name, '1s');
  const begun = performance.now();
  await limiter.untilReady(name, '1s');
  assert.ok(performance.now() - begun >= 150, `it came after ${performance.now() - begun} ms`);
  const error = await limiter.untilReady(name, '1ms').catch((caught) => caught);
  assert.equal(error.code, 'RATE_LIMIT_EXCEEDED');
  await assert.rejects(limiter.untilReady(name, {}), /maxWait/);
});

onBoth(test, 'a limiter wraps calls, by the key of each', async (client, name) => {
  const limiter = client.limiter('through', perHour(1));
  assert.equal(await limiter.call(() => 'ran', { key: `${name}a` }), 'ran');
  const unsaid = client.limiter(`${name}u`, perHour(2));
  const seen = ({ attempt, signal }, ...others) => [attempt, signal.aborted, others];
  assert.deepEqual(await unsaid.call(seen), [1, false, []]);
  assert.deepEqual(await unsaid.wrap(seen, { context: true })(), [1, false, []]);
  await assert.rejects(limiter.call(() => 'ran', { key: `${name}a` }), RateLimitExceededError);
  assert.equal(await wrap(retry({ on: handleAll }), limiter).call(() => 'ran', { key: `${name}b` }), 'ran');
});

onBoth(test, 'a lock is granted again only inside its call', async (client, name) => {
  const lock = client.lock(name, { wait: 0 });
  const outer = await lock.call(async ({ fence }) => {
    await turn();
    assert.equal(await lock.call(async (inner) => { await turn(); return inner.fence === fence; }), true);
    const again = await lock.acquire();
    assert.equal(again.fence, fence);
    await again.release();
    assert.ok((await lock.info()).holdersTotal === 1, 'it is still held');
    const both = await Promise.all([lock.call(async () => 'one'), wrap(retry({ on: handleAll }), client.lock(name, { wait: 0 })).call(() => 'two')]);
    assert.deepEqual(both, ['one', 'two']);
    return fence;
  });
  assert.equal(typeof outer, 'bigint');
  const shared = client.lock(`${name}s`, { wait: 0, shared: true });
  await assert.rejects(shared.call(() => client.lock(`${name}s`, { wait: 0 }).acquire()), DeadlockError);
});

test('work begins once, when awaited, also inside a lock', async () => {
  const client = await connect('memory://');
  for (const guard of [client.lock('lazy'), client.breaker('lazy'), retry({ on: handleAll }), wrap(client.breaker('timed'), timeout(1_000))]) {
    let begun = 0;
    assert.equal(await guard.call(() => ({ then(resolve) { begun += 1; resolve('done'); } })), 'done');
    assert.equal(begun, 1);
  }
  await client.shutdown();
});

onBoth(test, 'a caller outside of a lock stays outside', async (client, name) => {
  const lock = client.lock(name, { wait: 0 });
  let leave;
  const inside = lock.call(() => new Promise((resolve) => { leave = resolve; }));
  await until(() => leave !== undefined);
  await assert.rejects(lock.call(() => 1), LockTimeoutError);
  leave();
  await inside;
});

onBoth(test, 'what outlives its lock has to ask like others', async (client, name) => {
  const lock = client.lock(name, { wait: 0 });
  let go;
  let late;
  await lock.call(() => { late = new Promise((resolve) => { go = resolve; }).then(() => lock.acquire()); });
  const other = await lock.acquire();
  go();
  await assert.rejects(late, LockTimeoutError);
  await other.release();
});

onBoth(test, 'a breaker opens for everybody, and tells its listeners', async (client, name) => {
  const breaker = client.breaker(name, { consecutiveFailures: 2, openFor: '60s' });
  const transitions = [];
  breaker.on('transition', (transition) => transitions.push(transition));
  for (let run = 0; run < 2; run += 1) await assert.rejects(breaker.call(() => Promise.reject(new Error('down'))), /down/);
  await until(async () => (await breaker.state()).state === 'open');
  const error = await breaker.call(() => 1).catch((caught) => caught);
  assert.ok(error instanceof CircuitOpenError && error.resource === name);
  await until(() => transitions.length > 0);
  assert.equal(transitions[0].new, 'open');
  assert.equal(typeof transitions[0].generation, 'bigint');
  assert.equal(await breaker.reset(), true);
  assert.equal(await breaker.call(() => 1), 1);
});

onBoth(test, 'errors that are ignored are not held against a breaker', async (client, name) => {
  class NotFound extends Error {}
  const breaker = client.breaker(name, { consecutiveFailures: 1, ignore: NotFound });
  await assert.rejects(breaker.call(() => { throw new NotFound(); }), NotFound);
  assert.equal(await breaker.call(() => 1), 1);
});

onBoth(test, 'a breaker can be asked, fed and forced by hand', async (client, name) => {
  const breaker = client.breaker(name, { consecutiveFailures: 1 });
  await (await breaker.admit()).success();
  {
    const permit = await breaker.admit();
    await permit[Symbol.asyncDispose]();
    await permit.failure();
    assert.equal((await breaker.state()).state, 'closed', 'only the first report counts');
  }
  await (await breaker.admit()).failure();
  await until(async () => (await breaker.state()).state === 'open');
  assert.equal(await breaker.force('closed', { reason: 'maintenance', duration: '1h' }), 'forced-closed');
  const { forced } = await breaker.state();
  assert.equal(forced.reason, 'maintenance');
  assert.ok(forced.until > forced.since);
  assert.equal((await breaker.force('auto')).startsWith('forced'), false);
});

onBoth(test, 'a lock is held by one, and its fences grow', async (client, name) => {
  const lock = client.lock(name);
  const first = await lock.acquire();
  assert.equal(typeof first.fence, 'bigint');
  assert.ok(first.isHeld && first.remainingMs > 0 && first.owner.length > 0);
  assert.equal(await lock.check(first.owner, first.fence), true);
  const error = await lock.tryAcquire().catch((caught) => caught);
  assert.ok(error instanceof LockTimeoutError && error.retryable);
  const waiting = lock.acquire();
  await until(async () => (await lock.info()).waitersTotal + 1 > 0);
  await first.release();
  const second = await waiting;
  assert.ok(second.fence > first.fence);
  await second.extend('20s');
  assert.equal(await second.check(), true);
  await second[Symbol.asyncDispose]();
  await second[Symbol.asyncDispose]();
  await assert.rejects(second.release(), InvalidArgumentError);
});

onBoth(test, 'a broken lock is lost by event, signal and work', async (client, name) => {
  const lock = client.lock(name, { lease: 600 });
  const guard = await lock.acquire();
  let error;
  guard.on('lost', (given) => { error = given; });
  const { signal } = guard;
  assert.equal(await lock.breakLock('ann', 'test'), 1);
  await until(() => error !== undefined);
  assert.ok(error instanceof LockLostError);
  assert.ok(signal.aborted && signal.reason instanceof LockLostError);
  assert.throws(() => guard.ensure(), LockLostError);
  await guard[Symbol.asyncDispose]();

  let inner;
  const run = lock.call((context) => { inner = context; return never(); });
  await until(() => inner !== undefined);
  // The loss may arrive before the reply: it is awaited from the beginning.
  await Promise.all([assert.rejects(run, LockLostError), lock.breakLock()]);
  assert.ok(inner.signal.aborted);
  assert.equal(typeof inner.fence, 'bigint');
});

onBoth(test, 'a lock whose function runs on only warns it', async (client, name) => {
  const lock = client.lock(name, { lease: 600, keepRunningWhenLost: true });
  const run = lock.call(({ signal }) => new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve('cleaned up'));
    void lock.breakLock();
  }));
  assert.equal(await run, 'cleaned up');
});

onBoth(test, 'a caller that gives up a lock leaves the queue', async (client, name) => {
  const lock = client.lock(name);
  const held = await lock.acquire();
  const controller = new AbortController();
  const waiting = lock.untilAcquired({ signal: controller.signal });
  await turn();
  controller.abort();
  await assert.rejects(waiting, CancelledError);
  await held.release();
  await (await lock.acquire({ wait: '5s' })).release();
});

onBoth(test, 'a shared bulkhead lets in so many', async (client, name) => {
  const bulkhead = client.sharedBulkhead(name, { maxConcurrentCalls: 1 });
  const inside = await bulkhead.enter();
  await assert.rejects(bulkhead.tryEnter(), BulkheadFullError);
  assert.equal((await bulkhead.info()).holdersTotal, 1);
  await inside.leave();
  assert.equal(await bulkhead.call(() => 'in'), 'in');
});

onBoth(test, 'work is done once, and its result is everybody’s', async (client, name) => {
  const payments = client.idempotent('payments');
  let runs = 0;
  const pay = () => payments.run(name, { amount: 7 }, async ({ fence, attempt }) => {
    runs += 1;
    assert.equal(typeof fence, 'bigint');
    assert.equal(attempt, 1);
    await turn();
    return { receipt: 'ä€', big: 2 ** 53 };
  });
  const outcomes = await Promise.all([pay(), pay(), pay()]);
  assert.equal(runs, 1);
  assert.deepEqual(outcomes.map((outcome) => outcome.value), Array(3).fill({ receipt: 'ä€', big: 2 ** 53 }));
  assert.equal(outcomes.filter((outcome) => outcome.replayed).length, 2);
  const known = await payments.get(name);
  assert.equal(Buffer.from(known.result).toString(), '{"receipt":"ä€","big":9007199254740992}', 'compact, in UTF-8');
  await assert.rejects(payments.run(name, { amount: 8 }, () => 1), IdempotencyMismatchError);
});

onBoth(test, 'failed work frees its key, unless the error is final', async (client, name) => {
  class Declined extends Error { name = 'Declined'; }
  const payments = client.idempotent('cards', { remember: { isFinal: (error) => error instanceof Declined } });
  await assert.rejects(payments.run(`${name}a`, 'x', () => { throw new Error('a hiccup'); }), /a hiccup/);
  assert.equal((await payments.run(`${name}a`, 'x', () => 'paid')).value, 'paid');
  await assert.rejects(payments.run(`${name}b`, 'x', () => { throw new Declined('no funds'); }), Declined);
  await assert.rejects(payments.run(`${name}b`, 'x', () => 'paid'), (error) => error.name === 'Declined' && error.message === 'no funds');
});

onBoth(test, 'results can be bytes, and nothing', async (client, name) => {
  const bytes = client.idempotent('blobs', { serializer: 'bytes' });
  for (let run = 0; run < 2; run += 1) {
    const { value } = await bytes.run(`${name}a`, undefined, () => new Uint8Array([0, 255, 7]));
    assert.deepEqual([...value], [0, 255, 7]);
  }
  const json = client.idempotent('odd');
  for (const replayed of [false, true]) {
    const done = await json.run(`${name}b`, undefined, () => {});
    assert.deepEqual([done.value, done.replayed], [null, replayed], 'it is done, and must not be done again');
  }
});

onBoth(test, 'an event is seen for the first time once', async (client, name) => {
  const events = client.idempotent('events');
  assert.equal(await events.once(name, '1h'), true);
  assert.equal(await events.once(name, '1h'), false);
  assert.deepEqual(await events.get(`${name}never`), { state: 'unknown' });
});

onBoth(test, 'a value is loaded once for all who ask', async (client, name) => {
  const users = client.cached('user', { ttl: '1h' });
  let loads = 0;
  const load = async (key) => { loads += 1; await turn(); return { key, name: 'Ada' }; };
  const found = await Promise.all(Array.from({ length: 50 }, () => users.get(name, load)));
  assert.equal(loads, 1);
  assert.ok(found.every((user) => user.name === 'Ada' && user.key === name));
  assert.equal((await users.lookup(name, load)).isFound, true);
  assert.equal(await users.invalidate(name), true);
  await users.get(name, load);
  assert.equal(loads, 2);
});

onBoth(test, 'that there is no such thing is known, too', async (client, name) => {
  const users = client.cached('nobody');
  let loads = 0;
  for (const nothing of [null, undefined]) {
    assert.equal(await users.get(name, () => { loads += 1; return nothing; }), undefined);
    assert.deepEqual(await users.lookup(name, () => { loads += 1; return nothing; }), { isFound: false });
  }
  assert.equal(loads, 1);
});

onBoth(test, 'callers that share a failed load get its error', async (client, name) => {
  const users = client.cached('failing', { errorTtl: 0 });
  const boom = new RangeError('boom');
  const asked = Array.from({ length: 5 }, () => users.get(name, async () => { await turn(); throw boom; }).catch((caught) => caught));
  assert.ok((await Promise.all(asked)).every((error) => error === boom));
});

onBoth(test, 'a slow loader is aborted, and its value ignored', async (client, name) => {
  const slow = client.cached('slow', { loadTimeout: 30, retry: 0 });
  let signal;
  await assert.rejects(slow.get(name, (_key, context) => { signal = context.signal; return never(); }), /no result|failed/);
  await until(() => signal.aborted);
});

onBoth(test, 'values can be bytes, and can have versions', async (client, name) => {
  const blobs = client.cached('blob', { serializer: 'bytes' });
  assert.deepEqual([...(await blobs.get(name, () => Buffer.from([1, 2])))], [1, 2]);
  const rows = client.versionedCached('row');
  assert.deepEqual(await rows.get(name, () => ({ version: 2n ** 60n, value: 'a' })), { version: 2n ** 60n, value: 'a' });
  await assert.rejects(rows.get(name, () => ({ version: 3, value: 'b' }), { atLeast: 2n ** 61n }), LoadFailedError);
});

onBoth(test, 'a caller that gives up ends nobody’s load', async (client, name) => {
  const users = client.cached('patient');
  const controller = new AbortController();
  let finish;
  const first = users.get(name, () => new Promise((resolve) => { finish = resolve; }), { signal: controller.signal });
  const second = users.get(name, () => 'mine');
  await until(() => finish !== undefined);
  controller.abort();
  await assert.rejects(first, CancelledError);
  finish('theirs');
  assert.equal(await second, 'theirs');
});

onBoth(test, 'a whole policy is one call in any form', async (client, name) => {
  const settings = { timeout: { total: '1s' }, retry: { maxAttempts: 2, initialBackoff: '1ms' }, breaker: { name: `${name}b` }, rateLimit: { ...perSecond(100), name: 'whole' }, sharedBulkhead: { maxConcurrentCalls: 3, name: `${name}s` } };
  const whole = client.policy('whole', { on: handleAll, ...settings });
  assert.deepEqual(whole.order, ['total', 'retry', 'breaker', 'rate-limit', 'shared-bulkhead']);
  let runs = 0;
  assert.equal(await whole.call(() => { runs += 1; if (runs === 1) throw new Error('x'); return 'ok'; }, { key: name }), 'ok');
  const yaml = 'version: 1\npolicies:\n  a:\n    retry: { maxAttempts: 2, initialBackoff: 1ms }\n';
  for (const file of [yaml, JSON.stringify({ version: 1, policies: { a: settings } }), { version: 1, policies: { a: settings } }]) {
    const policies = client.policies(file);
    assert.deepEqual(policies.names, ['a']);
    assert.equal(await policies.policy('a', { on: handleAll }).call(() => 'ok'), 'ok');
  }
});

onBoth(test, 'all attempts of a policy are one run', async (client, name) => {
  const policy = client.policy('once', { on: handleAll, retry: { maxAttempts: 3, initialBackoff: 1 } });
  const payments = client.idempotent('once');
  const fences = [];
  const pay = () => policy.callOnce(payments, name, 'x', ({ fence }) => {
    fences.push(fence);
    if (fences.length < 2) throw new Error('x');
    return { n: 1 };
  });
  assert.deepEqual((await pay()).value, { n: 1 });
  const again = await pay();
  assert.deepEqual([again.value, again.replayed], [{ n: 1 }, true]);
  assert.equal(fences.length, 2);
  assert.equal(fences[0], fences[1]);
});

test('a clock that is driven decides when limits fill', async () => {
  const clock = Clock.driven();
  const client = await connect('memory://', { clock });
  const logins = client.limiter('logins', perHour(1));
  assert.ok((await logins.check('ann')).isGranted);
  assert.ok(!(await logins.check('ann')).isGranted);
  clock.advance('1h');
  assert.ok((await logins.check('ann')).isGranted);
});

test('a shutdown waits for calls and admits none', async () => {
  const client = await connect('memory://');
  const policy = client.policy('p', { breaker: {} });
  let finish;
  const running = policy.call(() => new Promise((resolve) => { finish = resolve; }));
  const gone = client.shutdown('5s');
  await until(() => client.isShuttingDown);
  await assert.rejects(policy.call(() => 1), ShuttingDownError);
  finish('done');
  assert.equal(await running, 'done');
  const report = await gone;
  assert.deepEqual([report.drained, report.cutOff, report.isClean], [1, 0, true]);
});

test('an absent server fails at use, a wrong URL immediately', async () => {
  await assert.rejects(connect('http://nowhere'), InvalidArgumentError);
  const client = await connect('redis://127.0.0.1:1', { commandTimeout: 100 });
  assert.equal(client.health().overall, 'unhealthy');
  const error = await client.lock('x', { wait: 0 }).acquire().catch((caught) => caught);
  assert.equal(error.code, 'BACKEND_UNAVAILABLE');
  assert.ok(!error.message.includes('127.0.0.1'), 'no addresses in messages');
  assert.ok((await client.limiter('l', perSecond(1)).check('a')).decidedBy === 'local');
});
