/** Many calls in one turn of the event loop: all are counted, none exceeds a limit, and timeouts and shutdowns end what still runs. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';

import { bulkhead, connect, handleAll, retry, timeout, wrap, BulkheadFullError, CircuitOpenError, RetryExhaustedError, ShuttingDownError, TimeoutError } from 'resil';
import { Clock } from 'resil/testing';
import { never, settled, until } from './waiting.mjs';

const noop = async () => 1;

/** So many calls one after the other within one turn. */
async function rush(guard, calls = 40) {
  for (let at = 0; at < calls; at += 1) await guard.call(noop);
}

function gate() {
  let open;
  const promise = new Promise((resolve) => { open = resolve; });
  return { promise, open };
}

test('every call of a rush is counted, and none twice', async () => {
  const client = await connect('memory://');
  const breaker = client.breaker('counted', { windowCalls: 10_000, consecutiveFailures: 0 });
  await rush(breaker, 1_000);
  await Promise.all(Array.from({ length: 500 }, () => breaker.call(async () => { await nextTurn(); })));
  for (let at = 0; at < 10; at += 1) await breaker.call(() => { throw new Error('x'); }).catch(() => {});
  const state = await breaker.state();
  assert.deepEqual([state.calls, state.failures], [1_510, 10]);
  await client.shutdown();
});

test('successes in a rush end the row of failures', async () => {
  const client = await connect('memory://');
  const breaker = client.breaker('row', { consecutiveFailures: 2, openFor: '1h' });
  const fails = () => breaker.call(() => { throw new Error('x'); }).catch((error) => error.code ?? 'x');
  await rush(breaker);
  for (let round = 0; round < 20; round += 1) {
    assert.equal(await fails(), 'x', `round ${round}`);
    await rush(breaker, 1 + round);
  }
  await fails();
  assert.equal((await breaker.state()).failuresInARow, 1);
  await client.shutdown();
});

test('a circuit that opens refuses the turn’s next call', async () => {
  const client = await connect('memory://');
  const breaker = client.breaker('within', { consecutiveFailures: 2, openFor: '1h' });
  const other = wrap(retry({ on: handleAll, budget: null }), breaker);
  await rush(breaker);
  await rush(other);
  let isSameTurn = true;
  setImmediate(() => { isSameTurn = false; });
  for (let at = 0; at < 2; at += 1) await breaker.call(() => { throw new Error('x'); }).catch(() => {});
  await assert.rejects(breaker.call(noop), CircuitOpenError);
  await assert.rejects(other.call(noop), CircuitOpenError);
  assert.ok(isSameTurn, 'all that was in one turn');
  await client.shutdown();
});

test('one turn never exceeds a bulkhead, and numbers are exact', async () => {
  const most = 10;
  const narrow = bulkhead({ maxConcurrentCalls: most, maxQueue: 1_000 });
  const other = wrap(retry({ on: handleAll }), narrow);
  await rush(narrow, 200);
  await rush(other, 200);
  assert.deepEqual({ ...narrow.metrics }, { active: 0, queued: 0, available: most, completed: 400, rejected: 0, abandoned: 0 });
  let now = 0;
  let seen = 0;
  const work = async (length) => {
    seen = Math.max(seen, (now += 1));
    for (let at = 0; at < length; at += 1) await (at % 3 === 2 ? nextTurn() : undefined);
    now -= 1;
  };
  const all = [];
  for (let at = 0; at < 300; at += 1) all.push((at % 2 ? narrow : other).call(() => work(at % 7)));
  const { active, queued, available } = narrow.metrics;
  assert.deepEqual([active, queued, available], [most, 300 - most, 0]);
  await settled(Promise.all(all));
  assert.equal(seen, most);
  assert.deepEqual({ ...narrow.metrics }, { active: 0, queued: 0, available: most, completed: 700, rejected: 0, abandoned: 0 });
});

test('calls through several bulkheads are counted by each', async () => {
  const client = await connect('memory://');
  const [wide, narrow] = [bulkhead({ maxConcurrentCalls: 100 }), bulkhead({ maxConcurrentCalls: 3 })];
  await rush(wrap(wide, client.breaker('between'), narrow), 200);
  for (const [each, available] of [[wide, 100], [narrow, 3]]) {
    assert.deepEqual({ ...each.metrics }, { active: 0, queued: 0, available, completed: 200, rejected: 0, abandoned: 0 });
  }
  const report = await client.shutdown(0);
  assert.deepEqual([report.drained, report.cutOff], [0, 0]);
});

test('permits are free for others as soon as calls end', async () => {
  const narrow = bulkhead({ maxConcurrentCalls: 4 });
  const other = wrap(retry({ on: handleAll }), narrow);
  await rush(narrow);
  const permits = Array.from({ length: 4 }, () => narrow.tryAcquire());
  assert.throws(() => narrow.tryAcquire(), BulkheadFullError);
  permits.forEach((permit) => permit.release());
  await rush(narrow);
  const held = gate();
  const calls = Array.from({ length: 4 }, () => other.call(() => held.promise));
  await assert.rejects(narrow.call(noop), BulkheadFullError);
  held.open();
  await settled(Promise.all(calls));
  await rush(narrow);
  (await narrow.acquire()).release();
  assert.equal(narrow.metrics.active, 0);
  assert.equal(narrow.metrics.rejected, 2);
});

test('a waiter gets a permit in its release’s turn', async () => {
  const narrow = bulkhead({ maxConcurrentCalls: 2, maxQueue: 10 });
  await rush(narrow);
  const held = gate();
  const calls = Array.from({ length: 2 }, () => narrow.call(() => held.promise));
  const waits = narrow.call(async () => 'in');
  await rush(retry({ on: handleAll }));
  held.open();
  assert.equal(await settled(waits), 'in');
  await Promise.all(calls);
});

test('a call outliving its turn releases amid others', async () => {
  const narrow = bulkhead({ maxConcurrentCalls: 10 });
  await rush(narrow);
  const held = gate();
  const calls = Array.from({ length: 3 }, () => narrow.call(() => held.promise));
  await nextTurn();
  await rush(narrow);
  held.open();
  await rush(narrow);
  await settled(Promise.all(calls));
  assert.deepEqual({ ...narrow.metrics }, { active: 0, queued: 0, available: 10, completed: 123, rejected: 0, abandoned: 0 });
});

test('a retry in a rush goes on after a failure', async () => {
  const policy = retry({ on: handleAll, initialBackoff: 1, budget: null, maxAttempts: 3 });
  await rush(policy);
  const seen = [];
  assert.equal(await policy.call(async ({ attempt }) => { seen.push(attempt); if (attempt < 3) throw new Error('x'); return 'third'; }), 'third');
  assert.deepEqual(seen, [1, 2, 3]);
  await rush(policy);
  await assert.rejects(policy.call(() => { throw new Error('x'); }), RetryExhaustedError);
});

test('a shutdown waits only for the calls in flight', async () => {
  const client = await connect('memory://');
  const breaker = client.breaker('drained');
  await rush(breaker);
  const held = gate();
  const calls = Array.from({ length: 5 }, () => breaker.call(() => held.promise));
  await rush(breaker, 3);
  const gone = client.shutdown('10s');
  await until(() => client.isShuttingDown);
  await assert.rejects(breaker.call(noop), ShuttingDownError);
  held.open('done');
  assert.deepEqual(await settled(Promise.all(calls)), Array(5).fill('done'));
  const report = await settled(gone);
  assert.deepEqual([report.drained, report.cutOff, report.isClean], [5, 0, true]);
});

for (const [way, make] of Object.entries({
  'alone': (client) => client.breaker('cut'),
  'with a timeout': (client) => wrap(client.breaker('cut'), timeout('5m')),
  'with a retry': (client) => wrap(retry({ on: handleAll }), client.breaker('cut')),
  'with a timeout and a retry': (client) => wrap(timeout('5m'), retry({ on: handleAll }), client.breaker('cut')),
})) {
  test(`a call ${way} at a shutdown’s deadline notifies its function`, async () => {
    const client = await connect('memory://');
    const guard = make(client);
    await rush(guard);
    const signals = [];
    const calls = Array.from({ length: 3 }, () => guard.call(({ signal }) => { signals.push(signal); return never(); }));
    const [report, ...errors] = await settled(Promise.all([client.shutdown(20), ...calls.map((call) => call.catch((error) => error))]));
    assert.ok(errors.every((error) => error instanceof ShuttingDownError), String(errors[0]));
    assert.ok(signals.every((signal) => signal.aborted));
    assert.deepEqual([report.drained, report.cutOff], [0, 3]);
  });
}

test('a timeout fires exactly for what outlives the turn', async () => {
  const clock = Clock.driven();
  const policy = timeout({ after: 50, clock });
  await rush(policy);
  let context;
  const call = policy.call((given) => { context = given; return never(); });
  clock.advance(49);
  await nextTurn();
  const later = policy.call(never);
  clock.advance(1);
  const error = await settled(call.catch((caught) => caught));
  assert.ok(error instanceof TimeoutError);
  assert.equal(error.afterMs, 50);
  assert.equal(context.signal.reason, error);
  let isOver = false;
  later.catch(() => { isOver = true; });
  clock.advance(48);
  await nextTurn();
  await nextTurn();
  assert.equal(isOver, false, 'it began 49 ms later');
  clock.advance(1);
  await assert.rejects(settled(later), TimeoutError);
});

test('a timeout fires in time, and never afterwards', async () => {
  const policy = timeout(40);
  await rush(policy);
  const began = performance.now();
  const late = Array.from({ length: 100 }, () => policy.call(never).catch((error) => [error.code, performance.now() - began]));
  const early = Array.from({ length: 100 }, (_, at) => policy.call(async () => { await nextTurn(); return at; }));
  assert.deepEqual(await settled(Promise.all(early)), early.map((_, at) => at));
  for (const [code, took] of await settled(Promise.all(late))) {
    assert.equal(code, 'TIMEOUT');
    assert.ok(took >= 39 && took < 1_000, `it took ${took} ms`);
  }
});

test('a timed out attempt is counted, then retried', async () => {
  const client = await connect('memory://');
  const clock = Clock.driven();
  const breaker = client.breaker('late', { consecutiveFailures: 5, openFor: '1h' });
  const inside = client.breaker('inside', { consecutiveFailures: 5 });
  const narrow = bulkhead({ maxConcurrentCalls: 3 });
  const guard = wrap(retry({ on: handleAll, initialBackoff: 1, budget: null, maxAttempts: 2 }), breaker, timeout({ after: 20, clock }), inside, narrow);
  await rush(guard);
  const seen = [];
  const call = guard.call(({ attempt, signal }) => {
    seen.push([attempt, signal]);
    return attempt === 1 ? never() : 'second';
  });
  await nextTurn();
  clock.advance(20);
  assert.equal(await settled(call), 'second');
  assert.deepEqual(seen.map(([attempt]) => attempt), [1, 2]);
  assert.ok(seen[0][1].reason instanceof TimeoutError);
  assert.equal(seen[1][1].aborted, false);
  await breaker.call(() => { throw new Error('x'); }).catch(() => {});
  await inside.call(() => { throw new Error('x'); }).catch(() => {});
  assert.deepEqual([(await breaker.state()).failures, (await inside.state()).failures], [2, 1], 'what is inside of the timeout was given up, and has not failed');
  assert.equal(narrow.metrics.active, 0);
  await client.shutdown();
});

test('of two nested timeouts the shorter fires and counts', async () => {
  const client = await connect('memory://');
  const clock = Clock.driven();
  const breaker = client.breaker('shorter');
  const guard = wrap(timeout({ after: 20, clock }), breaker, timeout({ after: 30, clock }));
  await rush(guard);
  const call = guard.call(never);
  clock.advance(20);
  const error = await settled(call.catch((caught) => caught));
  assert.equal(error.afterMs, 20);
  await breaker.call(() => { throw new Error('x'); }).catch(() => {});
  assert.equal((await breaker.state()).failures, 1);
  await client.shutdown();
});

test('a call counts for the circuit in which it began', async () => {
  const client = await connect('memory://');
  const breaker = client.breaker('old', { consecutiveFailures: 1, openFor: '1h' });
  await rush(breaker);
  const held = gate();
  const old = breaker.call(async () => { await held.promise; throw new Error('old'); });
  await breaker.call(() => { throw new Error('x'); }).catch(() => {});
  assert.equal((await breaker.state()).state, 'open');
  await breaker.reset();
  await rush(breaker);
  held.open();
  await assert.rejects(settled(old), /old/);
  assert.equal(await breaker.call(noop), 1);
  assert.equal((await breaker.state()).failures, 0);
  await client.shutdown();
});

test('a test’s own timers stop no calls', async () => {
  const real = globalThis.setImmediate;
  globalThis.setImmediate = () => {};
  try {
    await assert.rejects(settled(timeout(20).call(never)), TimeoutError);
  } finally {
    globalThis.setImmediate = real;
  }
});
