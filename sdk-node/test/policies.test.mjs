/** What a process does by itself. Time is driven wherever there is some. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { budget, bulkhead, connect, dispatcher, fallback, handleAll, handleNone, hedge, retry, timeout, wrap, BulkheadFullError, CancelledError, CircuitOpenError, RetryExhaustedError, TimeoutError } from 'resil';
import { Clock } from 'resil/testing';
import { never, settled, turn, until } from './waiting.mjs';

test('a retry tells its attempt while errors may pass', async () => {
  const seen = [];
  const value = await retry({ on: handleAll, initialBackoff: 1 }).call(async ({ attempt }) => {
    seen.push(attempt);
    if (attempt < 3) throw new Error('not yet');
    return 'done';
  });
  assert.equal(value, 'done');
  assert.deepEqual(seen, [1, 2, 3]);
});

test('a failed result is retried, and the last returned', async () => {
  const unwell = ({ status }) => status === 503;
  const replies = [503, 503, 200, 503, 503].map((status) => ({ status }));
  const again = retry({ onResult: unwell, initialBackoff: 1 });
  assert.deepEqual(await again.call(() => replies.shift()), { status: 200 });
  assert.deepEqual(await retry({ on: handleNone, onResult: unwell, initialBackoff: 1, maxAttempts: 2 }).call(async () => replies.shift()), { status: 503 });
  assert.equal(replies.length, 0);
  await assert.rejects(again.call(() => null), TypeError, 'a judge that throws is what the caller gets');
  assert.throws(() => retry({ onResult: 503 }), /onResult/);
  assert.throws(() => retry({}), /on must be/);
});

test('results trip a breaker through the layers that judge', async () => {
  const client = await connect('memory://');
  const judging = client.breaker('judging', { onResult: (status) => status >= 500, consecutiveFailures: 2 });
  const trusting = client.breaker('trusting', { consecutiveFailures: 1 });
  const both = wrap(trusting, judging);
  assert.deepEqual([await both.call(() => 503), await both.call(() => 503)], [503, 503]);
  await assert.rejects(both.call(() => 200), CircuitOpenError);
  assert.equal((await judging.state()).state, 'open');
  assert.equal((await trusting.state()).state, 'closed');
  await client.shutdown(1_000);
});

test('a budget is shared by several policies', async () => {
  const shared = budget({ minPerSecond: 1, ttl: '10s', percent: 0, clock: Clock.driven() });
  assert.equal(shared.available, 10);
  let calls = 0;
  const fail = () => { calls += 1; throw new Error('down'); };
  for (let turn = 0; turn < 10; turn += 1) {
    for (const maxAttempts of [3, 2]) {
      await assert.rejects(retry({ on: handleAll, maxAttempts, initialBackoff: 1, budget: shared }).call(fail), RetryExhaustedError);
    }
  }
  assert.deepEqual([calls, shared.available], [20 + 10, 0], 'ten extra calls for both together');
  hedge({ on: handleAll, hedgingDelay: 10, budget: shared });
  assert.throws(() => budget({ percent: 5_000 }), /percent/);
});

test('a whole policy judges results, and its breaker counts them', async () => {
  const client = await connect('memory://');
  const unwell = ({ status }) => status === 503;
  const replies = (...statuses) => () => ({ status: statuses.shift() });
  const again = { maxAttempts: 3, initialBackoff: 1 };
  const bank = client.policy('bank', { retry: again, onResult: unwell });
  assert.deepEqual(await bank.call(replies(503, 503, 200)), { status: 200 });
  assert.deepEqual(await bank.call(replies(503, 503, 503)), { status: 503 }, 'the last one, as it came');
  await assert.rejects(bank.call(() => null), TypeError, 'a judge that throws is what the caller gets');
  await assert.rejects(bank.callOnce(client.idempotent('payments'), 'k', undefined, replies(200)), /let fn throw/);
  assert.throws(() => client.policy('bank', { retry: again }), /on must be/);
  const fragile = client.policy('fragile', { breaker: { consecutiveFailures: 2 }, onResult: unwell });
  for (let turn = 0; turn < 2; turn += 1) assert.deepEqual(await fragile.call(replies(503)), { status: 503 });
  await assert.rejects(fragile.call(replies(200)), CircuitOpenError);
  await client.policies.set('stored', { retry: { maxAttempts: 2 } });
  const followed = await client.policy('stored', { onResult: (reply) => (unwell(reply) ? 1 : false) });
  assert.deepEqual(await followed.call(replies(503, 200)), { status: 200 });
  const file = client.policies({ version: 1, policies: { filed: { retry: again } } });
  assert.deepEqual(await file.policy('filed', { onResult: unwell }).call(replies(503, 200)), { status: 200 });
  await client.shutdown(1_000);
});

test('a budget is shared by whole policies', async () => {
  const client = await connect('memory://');
  const shared = budget({ minPerSecond: 1, ttl: '10s', percent: 0, clock: Clock.driven() });
  let calls = 0;
  const fail = () => { calls += 1; throw new Error('down'); };
  const settings = { on: handleAll, retry: { maxAttempts: 3, initialBackoff: 1, budget: shared } };
  const policies = ['reads', 'writes'].map((name) => client.policy(name, settings));
  for (let turn = 0; turn < 10; turn += 1) {
    for (const policy of policies) await assert.rejects(policy.call(fail), RetryExhaustedError);
  }
  assert.deepEqual([calls, shared.available], [20 + 10, 0], 'ten extra calls for both together');
  await assert.rejects(client.policyOr('stored', settings), /retry.budget/);
  await client.shutdown(1_000);
});

test('a manual trip half-opens, and cells are reserved together', async () => {
  const client = await connect('memory://');
  const bank = client.breaker('bank');
  assert.equal(await bank.force('open-then-probe', { duration: '1m', reason: 'drill' }), 'forced-open');
  assert.equal((await bank.state()).forced.endsIn, 'half-open');
  await assert.rejects(bank.force('open-then-probe'), /needs a duration/);
  const mail = client.limiter('mail', { limit: 1_000, period: '1s', burst: 10 });
  await mail.untilReady('ann', '1s', { cost: 10 });
  await assert.rejects(mail.untilReady('ann', '1s', { cost: 11 }), /never grant so much/);
  await client.shutdown(1_000);
});

test('a retry waits as long as its clock says', async () => {
  const clock = Clock.driven();
  const policy = retry({ on: handleAll, clock, jitter: 'none', initialBackoff: 100, maxAttempts: 2 });
  let runs = 0;
  const call = policy.call(() => { runs += 1; if (runs === 1) throw new Error('no'); return runs; });
  await until(() => clock.nextWakeMs !== null);
  clock.advance(99);
  await turn();
  assert.equal(runs, 1);
  clock.advance(1);
  assert.equal(await call, 2);
});

test('after the last attempt the last error is cause', async () => {
  const last = new Error('third');
  const errors = [new Error('first'), new Error('second'), last];
  const error = await retry({ on: handleAll, initialBackoff: 1 }).call(() => { throw errors.shift(); }).catch((caught) => caught);
  assert.ok(error instanceof RetryExhaustedError);
  assert.equal(error.attempts, 3);
  assert.equal(error.cause, last);
});

test('a permanent error comes through untouched, at once', async () => {
  const odd = { not: 'even an error' };
  let runs = 0;
  const on = (error) => error !== odd;
  await assert.rejects(retry({ on }).call(() => { runs += 1; throw odd; }), (caught) => caught === odd);
  await assert.rejects(retry({ on: handleNone }).call(() => Promise.reject(odd)), (caught) => caught === odd);
  assert.equal(runs, 1);
});

test('classes of errors say which are retried', async () => {
  class Flaky extends Error {}
  const policy = retry({ on: [Flaky, RangeError], initialBackoff: 1, maxAttempts: 2 });
  let runs = 0;
  await assert.rejects(policy.call(() => { runs += 1; throw new Flaky('f'); }), RetryExhaustedError);
  await assert.rejects(policy.call(() => { runs += 1; throw new SyntaxError('s'); }), SyntaxError);
  assert.equal(runs, 3);
});

test('a judge that throws becomes the error itself', async () => {
  const broken = new Error('the judge');
  await assert.rejects(retry({ on: () => { throw broken; } }).call(() => { throw new Error('x'); }), (caught) => caught === broken);
  await assert.rejects(retry({ on: () => 'perhaps' }).call(() => { throw new Error('x'); }), /what on returns/);
});

test('a timeout aborts the function without waiting for it', async () => {
  const clock = Clock.driven();
  let signal;
  const call = timeout({ after: 50, clock }).call((context) => { signal = context.signal; return never(); });
  assert.equal(signal.aborted, false);
  clock.advance(50);
  const error = await call.catch((caught) => caught);
  assert.ok(error instanceof TimeoutError);
  assert.ok(signal.aborted);
  assert.equal(signal.reason, error, 'the function learns why');
});

test('a signal first read after its abort is aborted', async () => {
  const clock = Clock.driven();
  let context;
  const call = timeout({ after: 50, clock }).call((given) => { context = given; return never(); });
  clock.advance(50);
  await assert.rejects(call, TimeoutError);
  assert.ok(context.signal.aborted);
});

test('a function’s end after its time is ignored', async () => {
  const clock = Clock.driven();
  const late = [];
  for (const end of ['resolve', 'reject']) {
    const call = timeout({ after: 5, clock }).call(() => new Promise((resolve, reject) => late.push(end === 'resolve' ? resolve : reject)));
    clock.advance(5);
    await assert.rejects(call, TimeoutError);
  }
  late.forEach((finish) => finish(new Error('too late')));
  await turn();
});

test('the faster hedged call wins, the other is aborted', async () => {
  const clock = Clock.driven();
  const signals = [];
  const call = hedge({ on: handleAll, hedgingDelay: 20, clock }).call(({ signal, attempt }) => {
    signals.push(signal);
    return attempt === 1 ? never() : 'second';
  });
  assert.equal(signals.length, 1);
  clock.advance(20);
  assert.equal(await call, 'second');
  assert.deepEqual(signals.map((signal) => signal.aborted), [true, false]);
  assert.ok(signals[0].reason instanceof CancelledError);
});

test('a bulkhead admits some, queues some, refuses the rest', async () => {
  const narrow = bulkhead({ name: 'narrow', maxConcurrentCalls: 1, maxQueue: 1 });
  const gates = [Promise.withResolvers?.() ?? withResolvers(), withResolvers()];
  const first = narrow.call(() => gates[0].promise);
  const second = narrow.call(() => gates[1].promise);
  const third = await narrow.call(() => 0).catch((caught) => caught);
  assert.ok(third instanceof BulkheadFullError);
  assert.equal(third.resource, 'narrow');
  assert.deepEqual({ ...narrow.metrics }, { active: 1, queued: 1, available: 0, completed: 0, rejected: 1, abandoned: 0 });
  gates.forEach((gate, at) => gate.resolve(at));
  assert.deepEqual(await Promise.all([first, second]), [0, 1]);
  const permit = await narrow.acquire();
  assert.throws(() => narrow.tryAcquire(), BulkheadFullError);
  permit[Symbol.dispose]();
  narrow.tryAcquire().release();
});

test('partitions of a bulkhead have places of their own', async () => {
  const parts = bulkhead({ maxConcurrentCalls: 1, partitions: { slow: { maxConcurrentCalls: 1 } } });
  const held = await parts.acquire();
  assert.equal(await parts.call(() => 'in', { partition: 'slow' }), 'in');
  assert.equal(await parts.partition('slow').call(() => 'in'), 'in');
  await assert.rejects(parts.call(() => 0, { partition: 'none' }), /partition/);
  held.release();
});

test('a fallback replaces a failure, and gets it', async () => {
  const down = new Error('down');
  assert.equal(await fallback('instead').call(() => { throw down; }), 'instead');
  assert.equal(await fallback(async (error) => error.message).call(() => Promise.reject(down)), 'down');
  assert.equal(await fallback('instead').call(() => 'fine'), 'fine');
  const only = fallback('instead', { when: (error) => error instanceof TimeoutError });
  await assert.rejects(only.call(() => { throw down; }), (caught) => caught === down);
  const worse = new Error('worse');
  await assert.rejects(fallback(() => { throw worse; }).call(() => { throw down; }), (caught) => caught === worse);
});

test('policies around each other are one call, outermost first', async () => {
  let runs = 0;
  const clock = Clock.driven();
  const guard = wrap(fallback((error) => error.cause.code), retry({ on: handleAll, initialBackoff: 1, maxAttempts: 3 }), timeout({ after: 10, clock }));
  const call = guard.call(() => { runs += 1; queueMicrotask(() => clock.advance(10)); return never(); });
  assert.equal(await call, 'TIMEOUT');
  assert.equal(runs, 3);
});

test('an open circuit is never retried, wherever it is', async () => {
  const client = await connect('memory://');
  const breaker = client.breaker('open', { consecutiveFailures: 1 });
  await assert.rejects(breaker.call(() => { throw new Error('x'); }));
  for (const call of [
    (count) => retry({ on: handleAll, initialBackoff: 1 }).call(() => { count(); return breaker.call(() => 1); }),
    (count) => wrap(retry({ on: (error) => { count(); return true; }, initialBackoff: 1 }), breaker).call(() => 1),
  ]) {
    let runs = 0;
    await assert.rejects(call(() => { runs += 1; }), CircuitOpenError);
    assert.ok(runs <= 1);
  }
});

test('a call let in at once is judged alike', async () => {
  const client = await connect('memory://');
  const breaker = client.breaker('judged', { consecutiveFailures: 3, openFor: '1h' });
  const narrow = bulkhead({ maxConcurrentCalls: 1 });
  const seen = [];
  const guard = wrap(retry({ on: (error) => error.message === 'again', initialBackoff: 1, budget: null }), breaker, narrow);
  assert.equal(await guard.call(({ attempt }) => { seen.push(attempt); if (attempt < 3) throw new Error('again'); return 'third'; }), 'third');
  assert.deepEqual(seen, [1, 2, 3]);
  await assert.rejects(guard.call(() => { throw new Error('for good'); }), /^Error: for good$/);
  const last = await guard.call(async () => { throw new Error('again'); }).catch((caught) => caught);
  assert.ok(last instanceof CircuitOpenError || last.cause?.message === 'again', String(last));
  await assert.rejects(guard.call(() => 1), CircuitOpenError);
  assert.equal(narrow.metrics.active, 0);
});

test('many calls through one guard are each their own', async () => {
  const client = await connect('memory://');
  const guard = wrap(retry({ on: handleAll, initialBackoff: 1, maxAttempts: 5, budget: null }), client.breaker('many', { consecutiveFailures: 0, failureRate: 0, slowCallDuration: '1m', slowCallRate: 100 }));
  const calls = Array.from({ length: 500 }, (_, at) => guard.call(async ({ attempt }) => {
    await turn();
    if (attempt <= at % 4) throw new Error(String(at));
    return at;
  }));
  assert.deepEqual(await Promise.all(calls), calls.map((_, at) => at));
});

test('an error of ours comes out as that object', async () => {
  const own = new TimeoutError('mine');
  await assert.rejects(timeout(1_000).call(() => { throw own; }), (caught) => caught === own);
  const client = await connect('memory://');
  await assert.rejects(client.breaker('b').call(() => Promise.reject(own)), (caught) => caught === own);
});

test('wrapped functions keep arguments, this, name and length', async () => {
  const target = { base: 2, async times(a, b) { return this.base * a * b; } };
  const times = wrap(retry({ on: handleAll }), timeout(1_000), target.times);
  assert.equal(times.length, 2);
  assert.equal(times.name, 'times');
  assert.equal(await times.call(target, 3, 4), 24);
});

test('a wrapped function may get its context last', async () => {
  const clock = Clock.driven();
  const target = { base: 2, async times(a, { attempt, signal }) { return attempt < 2 ? Promise.reject(new Error('x')) : [this.base * a, attempt, signal.aborted]; } };
  const times = wrap(retry({ on: handleAll, initialBackoff: 1, budget: null }), timeout({ after: 10, clock })).wrap(target.times, { context: true });
  assert.deepEqual(await times.call(target, 3), [6, 2, false]);
  assert.throws(() => retry({ on: handleAll }).wrap(target.times, { context: 'yes' }), /context must be a boolean/);
});

test('an aborted signal ends the call and notifies the function', async () => {
  for (const guard of [retry({ on: handleAll }), timeout(10_000), bulkhead({ maxConcurrentCalls: 1 }), wrap(retry({ on: handleAll }), timeout(10_000))]) {
    const controller = new AbortController();
    let inner;
    const call = guard.call(({ signal }) => { inner = signal; return never(); }, { signal: controller.signal });
    const reason = new Error('the user left');
    controller.abort(reason);
    const error = await call.catch((caught) => caught);
    assert.ok(error instanceof CancelledError);
    assert.equal(error.cause, reason);
    assert.ok(inner.aborted);
  }
});

test('a signal that was aborted before runs nothing', async () => {
  let runs = 0;
  await assert.rejects(retry({ on: handleAll }).call(() => { runs += 1; }, { signal: AbortSignal.abort() }), CancelledError);
  assert.equal(runs, 0);
});

test('a signal that lives long collects no listeners', async () => {
  const controller = new AbortController();
  let added = 0;
  const { addEventListener, removeEventListener } = controller.signal;
  controller.signal.addEventListener = function (...args) { added += 1; return addEventListener.apply(this, args); };
  controller.signal.removeEventListener = function (...args) { added -= 1; return removeEventListener.apply(this, args); };
  const policy = retry({ on: handleAll, initialBackoff: 1 });
  for (let run = 0; run < 100; run += 1) await policy.call(() => run, { signal: controller.signal });
  assert.equal(added, 0);
});

test('a batch runs a few at once, failures stay single', async () => {
  let now = 0;
  let most = 0;
  const results = await dispatcher(3).run([1, 2, 3, 4, 5, 6], async (item) => {
    most = Math.max(most, (now += 1));
    await turn();
    now -= 1;
    if (item === 2) throw new RangeError('two');
    return item * 10;
  });
  assert.equal(most, 3);
  assert.deepEqual(results.map((result) => result.status), ['fulfilled', 'rejected', 'fulfilled', 'fulfilled', 'fulfilled', 'fulfilled']);
  assert.equal(results[5].value, 60);
  assert.ok(results[1].reason instanceof RangeError);
});

test('a batch that stops at an error begins no more', async () => {
  const signals = [];
  const results = await dispatcher({ workers: 2, onError: 'cancel' }).run([1, 2, 3], async (item, { signal }) => {
    signals.push(signal);
    if (item === 2) { await turn(); throw new Error('two'); }
    return never();
  });
  assert.deepEqual(results.map((result) => result.status), ['cancelled', 'rejected', 'not-run']);
  assert.ok(signals[0].aborted);
});

test('an abandoned batch says what was done until then', async () => {
  const controller = new AbortController();
  const signals = [];
  const batch = dispatcher(2).run([1, 2, 3, 4, 5], async (item, { signal }) => {
    signals.push(signal);
    if (item === 2) throw new RangeError('two');
    if (item < 3) return item * 10;
    if (signals.length === 4) queueMicrotask(() => controller.abort());
    return never();
  }, { signal: controller.signal });
  const error = await settled(batch.catch((caught) => caught));
  assert.ok(error instanceof CancelledError);
  assert.deepEqual(error.results.map((result) => result.status), ['fulfilled', 'rejected', 'cancelled', 'cancelled', 'not-run']);
  assert.equal(error.results[0].value, 10);
  assert.ok(signals[2].aborted && signals[3].aborted);
});

test('batches may have no items or a hundred thousand', async () => {
  assert.deepEqual(await dispatcher(2).run([], () => 1), []);
  const results = await dispatcher(8).run(Array.from({ length: 100_000 }, (_, at) => at), (item) => item);
  assert.equal(results.length, 100_000);
  assert.ok(results.every((result, at) => result.value === at));
});

test('a function that throws equals one that rejects', async () => {
  for (const guard of [retry({ on: handleNone }), timeout(1_000), bulkhead({ maxConcurrentCalls: 1 })]) {
    for (const fn of [() => { throw new Error('x'); }, () => Promise.reject(new Error('x')), async () => { await turn(); throw new Error('x'); }]) {
      await assert.rejects(guard.call(fn), /^Error: x$/);
    }
    assert.equal(await guard.call(() => ({ then: (resolve) => resolve('a thenable') })), 'a thenable');
    assert.equal(await settled(guard.call(() => undefined)), undefined);
  }
});

function withResolvers() {
  let resolve;
  const promise = new Promise((done) => { resolve = done; });
  return { promise, resolve };
}

test('an error shows its caller’s frames through every policy', async () => {
  const client = await connect('memory://');
  const guards = {
    retry: retry({ on: handleAll, maxAttempts: 2, initialBackoff: 1, reraise: true }), timeout: timeout('10s'), fallback: fallback(1, { when: () => false }),
    bulkhead: bulkhead({ maxConcurrentCalls: 1 }), breaker: client.breaker('frames'), lock: client.lock('frames'), shared: client.sharedBulkhead('frames', 1),
    policy: client.policy('frames', { timeout: { total: '10s' } }), several: wrap(timeout('10s'), retry({ on: handleNone })),
  };
  for (const [name, guard] of Object.entries(guards)) {
    async function theCaller() { return await guard.call(async () => { await new Promise((resolve) => { setTimeout(resolve, 1); }); throw new Error('deep'); }); }
    const error = await theCaller().catch((caught) => caught);
    assert.match(error.stack, /at async theCaller/, name);
  }
  await client.shutdown();
});
