/** Promises of the pages that a stranger found broken. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import {
  IdempotencyFailedError, InvalidArgumentError, InvalidPolicyError, LockLostError, bulkhead, connect, dispatcher, fallback, handleAll, hedge, perHour, perSecond, retry, timeout,
} from 'resil';
import { Clock, raw } from 'resil/testing';
import { onBoth } from './servers.mjs';
import { never, settled, turn, until } from './waiting.mjs';

let stores = 0;
const store = () => `memory://outside-${stores += 1}`;

test('a broken lock in memory is reported at once', async () => {
  const url = store();
  const [holder, operator] = [await connect(url), await connect(url)];
  const held = await holder.lock('stock', { lease: '60s' }).acquire();
  const lost = new Promise((resolve) => { held.once('lost', resolve); });
  const called = holder.lock('till', { lease: '60s' }).call(({ signal }) => new Promise((_, reject) => { signal.addEventListener('abort', () => reject(signal.reason)); })).catch((error) => error);
  await until(async () => (await operator.lock('till').info()).holdersTotal === 1);
  const begun = performance.now();
  await operator.lock('stock').breakLock('ann', 'stuck');
  await operator.lock('till').breakLock();
  assert.ok(await settled(lost, 2_000) instanceof LockLostError);
  assert.ok(held.signal.aborted);
  assert.ok(await settled(called, 2_000) instanceof LockLostError);
  assert.ok(performance.now() - begun < 1_000, 'not at the next renewal');
  await Promise.all([holder.shutdown(100), operator.shutdown(100)]);
});

onBoth(test, 'a listener hears changes without calls of its own', async (client, name) => {
  const other = client.breaker(name, { consecutiveFailures: 1, openFor: '1h' });
  const heard = [];
  const breaker = client.breaker(name, { consecutiveFailures: 7 });
  breaker.on('transition', ({ previous, new: next }) => heard.push(`${previous} ${next}`));
  await until(() => breaker.lastKnownState === 'closed');
  await other.call(() => { throw new Error('down'); }).catch(() => {});
  await until(() => heard.length > 0);
  assert.deepEqual(heard, ['closed open']);
  assert.equal(breaker.lastKnownState, 'open');
});

onBoth(test, 'the last known state includes what state() answered', async (client, name) => {
  const breaker = client.breaker(name);
  assert.equal(breaker.lastKnownState, null);
  assert.equal((await breaker.state()).state, 'closed');
  assert.equal(breaker.lastKnownState, 'closed');
});

test('listeners added after a removal hear like the first', async () => {
  const client = await connect('memory://');
  const [breaker, heard] = [client.breaker('b'), []];
  breaker.on('transition', () => heard.push('removed'));
  breaker.removeAllListeners();
  breaker.once('transition', ({ new: next }) => heard.push(next));
  const held = await client.lock('k').acquire();
  held.removeAllListeners();
  const lost = new Promise((resolve) => { held.once('lost', resolve); });
  await client.breaker('b', { consecutiveFailures: 3 }).force('open');
  await client.lock('k').breakLock();
  await until(() => heard.length > 0);
  assert.deepEqual(heard, ['forced-open']);
  assert.equal((await settled(lost)).code, 'LOCK_LOST');
  assert.equal((await settled(new Promise((resolve) => { held.once('lost', resolve); }))).code, 'LOCK_LOST', 'also after it');
  assert.equal(held.listenerCount('lost'), 0);
  await client.shutdown(100);
});

test('a listener keeps its breaker as long as its client', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc');
  const client = await connect('memory://');
  const heard = [];
  client.breaker('b').on('transition', ({ new: next }) => heard.push(next));
  for (let at = 0; at < 5; at += 1) { collect(); await turn(); }
  await client.breaker('b', { consecutiveFailures: 3 }).force('open');
  await until(() => heard.length > 0);
  await client.shutdown(100);
});

test('shutdown waits for calls under limiters, locks and bulkheads', async () => {
  const client = await connect('memory://');
  const things = [client.limiter('l', perHour(10)), client.lock('k'), client.sharedBulkhead('s', 1), client.breaker('b')];
  let done = 0;
  const calls = things.map((one) => one.call(async () => {
    await new Promise((resolve) => setTimeout(resolve, 300));
    done += 1;
    return 'done';
  }));
  await turn();
  const report = await client.shutdown('5s');
  assert.equal(done, 4, 'all of them ended before');
  assert.deepEqual(await Promise.all(calls), ['done', 'done', 'done', 'done']);
  assert.equal(report.drained, 4);
  assert.ok(report.isClean);
});

test('a limiter call that outlives a shutdown is rejected', async () => {
  const client = await connect('memory://');
  let signal;
  const call = client.limiter('l', perHour(10)).call((context) => { signal = context.signal; return never(); }).catch((error) => error);
  await turn();
  const report = await client.shutdown(50);
  assert.equal((await settled(call)).code, 'SHUTTING_DOWN');
  assert.ok(signal.aborted);
  assert.equal(report.cutOff, 1);
});

test('half a surrogate pair is refused by argument name', async () => {
  const client = await connect('memory://');
  const half = 'a\ud800b';
  const limiter = client.limiter('l', perHour(5));
  const attempts = {
    key: [
      () => limiter.check(half), () => limiter.acquire(half), () => limiter.untilReady(half, 0), () => limiter.peek(half), () => limiter.refund(half, 1), () => limiter.upTo(half, 1),
      () => limiter.call(() => 1, { key: half }),
      () => client.idempotent('i').run(half, undefined, () => 1), () => client.idempotent('i').once(half, 1), () => client.idempotent('i').get(half),
      () => client.cached('c').get(half, () => 1), () => client.cached('c').invalidate(half), () => client.versionedCached('c').get(half, () => 1),
      () => client.policy('p', {}).callOnce(client.idempotent('i'), half, undefined, () => 1),
    ],
    name: [
      () => client.lock(half), () => client.breaker(half), () => client.limiter(half, perHour(1)), () => client.sharedBulkhead(half, 1), () => client.idempotent(half), () => client.cached(half),
      () => client.policy(half, {}), () => bulkhead({ name: half }), () => connect('memory://', { name: half }),
    ],
    'limits[0][1]': [() => client.checkAll([[limiter, half]])],
    request: [() => client.idempotent('i').run('k', half, () => 1)],
    token: [() => client.idempotent('i').once('k', 1, half)],
    owner: [() => client.lock('k').check(half)],
    reason: [() => client.breaker('b').force('open', { reason: half })],
    meta: [() => client.lock('k', { meta: half })],
    'words[1]': [() => raw(client, ['RES.LOCK', half])],
  };
  for (const [name, all] of Object.entries(attempts)) {
    for (const attempt of all) {
      const error = await (async () => attempt())().catch((caught) => caught);
      assert.ok(error instanceof InvalidArgumentError, `${attempt}: ${error}`);
      assert.ok(error.message.startsWith(`${name} must be well-formed text`), `${attempt}: ${error.message}`);
    }
  }
  assert.ok((await limiter.check('a pair: \u{1f600}')).isGranted);
  await client.shutdown(100);
});

test('memory without slashes is pointed to the URL', async () => {
  for (const url of ['memory', 'memory:', 'memory:/']) await assert.rejects(connect(url), /memory:\/\//);
});

test('values out of bounds are refused with the bounds', async () => {
  const client = await connect('memory://');
  for (const limit of [0, -1, 4_294_967_295, 1e12]) {
    assert.throws(() => client.limiter('l', { limit, period: '1s' }), new RegExp(`^InvalidPolicyError: limit must be from 1 to 1000000000, got ${limit}$`));
  }
  for (const limit of [0, -1]) assert.throws(() => client.limiter('l', perHour(limit)), new RegExp(`^InvalidPolicyError: limit must be from 1 to 1000000000, got ${limit}$`));
  for (const cost of [0, -1, 1e12]) await assert.rejects(client.limiter('l', perHour(1)).check('k', cost), new RegExp(`^InvalidArgumentError: cost must be from 1 to 1000000000, got ${cost}$`));
  await assert.rejects(client.limiter('l', perHour(1)).upTo('k', 0), /^InvalidArgumentError: most must be from 1 to/);
  await assert.rejects(client.breaker('b').force('open', { duration: 0 }), /^InvalidPolicyError: duration must be from 1ms to 366d, got 0$/);
  await client.shutdown(100);
});

test('a name in settings that is another is refused', async () => {
  const client = await connect('memory://');
  const made = [() => client.limiter('a', { ...perHour(1), name: 'other' }), () => client.sharedBulkhead('a', { maxConcurrentCalls: 1, name: 'other' }), () => client.breaker('a', { name: 'other' }), () => client.lock('a', { name: 'other' })];
  for (const make of made) assert.throws(make, InvalidPolicyError);
  assert.throws(() => client.policy('a', { name: 'other' }), InvalidArgumentError);
  await client.shutdown(100);
});

test('the error about an unknown option names all known ones', async () => {
  const client = await connect('memory://');
  const reported = async (attempt) => (await (async () => attempt())().catch((error) => error)).message.split('known: ')[1].split(', ');
  const wanted = [
    [() => client.breaker('b', { x: 1 }), ['ignore', 'failureRate'], ['name']],
    [() => client.limiter('l', { ...perHour(1), x: 1 }), ['burst'], ['name']],
    [() => client.sharedBulkhead('l', { maxConcurrentCalls: 1, x: 1 }), ['maxQueue'], ['name']],
    [() => client.idempotent('i', { x: 1 }), ['serializer', 'remember', 'lease'], []],
    [() => client.cached('c', { x: 1 }), ['serializer', 'ttl'], []],
    [() => retry({ on: handleAll, x: 1 }), ['on', 'name', 'clock', 'seed', 'jitter'], []],
    [() => hedge({ on: handleAll, x: 1 }), ['on', 'name', 'clock', 'percentile'], []],
    [() => bulkhead({ x: 1 }), ['name', 'clock', 'maxQueue'], []],
    [() => client.policy('p', { x: 1 }), ['on', 'order'], ['name']],
    [() => connect('memory://', { x: 1 }), ['name', 'clock', 'signal', 'instances'], []],
  ];
  for (const [attempt, has, hasNot] of wanted) {
    const known = await reported(attempt);
    for (const name of has) assert.ok(known.includes(name), `${attempt}: ${known}`);
    for (const name of hasNot) assert.ok(!known.includes(name), `${attempt}: ${known}`);
  }
  await client.shutdown(100);
});

test('a local bulkhead has a default size; fallbacks take classes', async () => {
  assert.equal(bulkhead().metrics.available, 25);
  assert.equal(await fallback('instead', { when: RangeError }).call(() => { throw new RangeError('x'); }), 'instead');
  await assert.rejects(fallback('instead', { when: [RangeError] }).call(() => { throw new TypeError('x'); }), TypeError);
});

test('a lock can be waited for without an end', async () => {
  const client = await connect('memory://');
  const held = await client.lock('k').acquire();
  const waiting = client.lock('k', { wait: 0 }).untilAcquired();
  await turn();
  await held.release();
  await (await settled(waiting)).release();
  await client.shutdown(100);
});

test('a driven clock drives everything of a client in memory', async () => {
  const clock = Clock.driven();
  const client = await connect('memory://', { clock });
  const limiter = client.limiter('l', perSecond(1));
  await limiter.acquire('k');
  assert.equal((await limiter.check('k')).isGranted, false);
  clock.advance('1s');
  assert.equal((await limiter.check('k')).isGranted, true);
  await client.shutdown(0);
});

test('results of a batch come as items are done', async () => {
  const few = dispatcher(2);
  const slow = new Promise((resolve) => setTimeout(resolve, 100, 'slow'));
  const work = (item) => (item === 0 ? slow : item);
  const numbers = (await few.runUnordered([0, 1, 2], work)).map(([number]) => number);
  assert.deepEqual(numbers, [1, 2, 0]);
  const ordered = [];
  for await (const { value } of few.stream([0, 1, 2], work)) ordered.push(value);
  assert.deepEqual(ordered, ['slow', 1, 2]);
  const unordered = [];
  const again = (item) => (item === 0 ? new Promise((resolve) => setTimeout(resolve, 100, 'slow')) : item);
  for await (const { value } of few.streamUnordered([0, 1, 2], again)) unordered.push(value);
  assert.deepEqual(unordered, [1, 2, 'slow']);
});

test('a stream is read at its workers’ pace, and closed', async () => {
  let taken = 0;
  let isClosed = false;
  async function* source() {
    try {
      for (;;) yield (taken += 1);
    } finally {
      isClosed = true;
    }
  }
  let isAborted = false;
  const stream = dispatcher(3).stream(source(), (item, { signal }) => {
    if (item < 3) return item;
    signal.addEventListener('abort', () => { isAborted = true; });
    return never();
  });
  const seen = [];
  for await (const { value } of stream) {
    seen.push(value);
    if (seen.length === 2) break;
  }
  assert.deepEqual(seen, [1, 2]);
  assert.ok(taken <= 6, `${taken}`);
  assert.ok(isClosed && isAborted);
});

test('a stream ends with its source’s error, or when asked', async () => {
  async function* broken() { yield 1; throw new Error('no more'); }
  const seen = [];
  await assert.rejects(async () => { for await (const result of dispatcher(1).stream(broken(), (item) => item)) seen.push(result.value); }, /no more/);
  assert.deepEqual(seen, [1]);
  const odd = (iterator) => async () => { for await (const _ of dispatcher(1).stream({ [Symbol.iterator]: () => iterator }, () => 1)) break; };
  await assert.rejects(odd({ next() { throw new Error('first'); }, return() { throw new Error('second'); } }), /first/);
  await assert.rejects(odd({ next: () => 5 }), TypeError);
  await assert.rejects(odd({ next: () => ({ done: false, value: 1 }), return() { throw new Error('close'); } }), /close/);
  const statuses = [];
  for await (const { status } of dispatcher({ workers: 1, onError: 'stop' }).stream([1, 2, 3, 4], (item) => { if (item === 2) throw new Error('x'); })) statuses.push(status);
  assert.deepEqual(statuses.slice(0, 2), ['fulfilled', 'rejected']);
  assert.ok(!statuses.slice(2).includes('fulfilled'));
  const leaving = new AbortController();
  const stream = dispatcher(1).stream([1], () => never(), { signal: leaving.signal });
  const next = stream.next();
  await turn();
  leaving.abort(new Error('enough'));
  const error = await settled(next).catch((caught) => caught);
  assert.equal(error.code, 'CANCELLED');
  assert.equal(error.cause.message, 'enough');
  for (const wrong of [undefined, 5, {}]) assert.throws(() => dispatcher(1).stream(wrong, () => 1), InvalidArgumentError);
});

onBoth(test, 'work that was cut short keeps its key', async (client, name) => {
  const work = client.idempotent('cut', { lease: '30s', wait: 0 });
  const once = client.policy(`${name}p`, { timeout: { attempt: 50 } });
  const ways = {
    'an attempt timeout': (key) => once.callOnce(work, key, undefined, () => never()),
    'an attempt timeout before another error': (key) => {
      let attempts = 0;
      const again = client.policy(`${name}q`, { timeout: { attempt: 50 }, retry: { maxAttempts: 2, initialBackoff: 1 }, on: handleAll });
      return again.callOnce(work, key, undefined, () => { if ((attempts += 1) === 1) return never(); throw new Error('refused'); });
    },
    'a total timeout': (key) => once.callOnce(work, key, undefined, () => never(), { totalTimeout: 50, attemptTimeout: 5_000 }),
    'a timeout inside': (key) => work.run(key, undefined, () => timeout(50).call(() => never())),
    'a timeout of the platform': (key) => work.run(key, undefined, () => new Promise((_, reject) => {
      const signal = AbortSignal.timeout(50);
      signal.addEventListener('abort', () => reject(signal.reason));
    })),
    'a signal': (key) => work.run(key, undefined, () => never(), { signal: AbortSignal.timeout(50) }),
  };
  for (const [what, run] of Object.entries(ways)) {
    const key = `${name}${what}`;
    await assert.rejects(async () => settled(run(key)));
    assert.equal((await work.get(key)).state, 'running', what);
  }
  const free = client.idempotent('free', { wait: 0, abortOnCancel: true });
  await assert.rejects(async () => settled(once.callOnce(free, name, undefined, () => never())));
  await until(async () => (await free.get(name)).state === 'unknown');
  await assert.rejects(work.run(`${name}plain`, undefined, () => { throw new Error('refused'); }), /refused/);
  assert.equal((await work.get(`${name}plain`)).state, 'unknown', 'an error of the function frees it');
});

onBoth(test, 'a duplicate of an unreadable final error learns so', async (client, name) => {
  const knows = client.idempotent('final', { remember: { isFinal: () => true } });
  await assert.rejects(knows.run(name, undefined, () => { throw new RangeError('declined'); }), RangeError);
  const error = await client.idempotent('final').run(name, undefined, () => 1).catch((caught) => caught);
  assert.ok(error instanceof IdempotencyFailedError, `${error}`);
  assert.equal(error.retryable, false);
  assert.match(error.message, /RangeError.*declined/);
  assert.equal(error.resource, 'final');
  assert.equal((await knows.run(name, undefined, () => 1).catch((caught) => caught)).name, 'RangeError');
});

onBoth(test, 'an empty idempotency key is refused', async (client) => {
  const work = client.idempotent('empty');
  for (const attempt of [() => work.run('', undefined, () => 1), () => work.once('', '1s'), () => work.get(''), () => client.policy('p', {}).callOnce(work, '', undefined, () => 1)]) {
    await assert.rejects(attempt, /^InvalidArgumentError: key must be/);
  }
});
