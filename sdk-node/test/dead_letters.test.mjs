/** Dead letters: failed in one place, taken in another, settled by hand or by a loop. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { CancelledError, connect } from 'resil';

async function ledger(name = 'orders', options = {}) {
  const client = await connect('memory://');
  const letters = client.deadLetters(name, { actor: 'ada', concurrency: 4, wait: 500, ...options });
  await letters.configure({ jitter: 'none', transient: { base: 100, cap: 100 } });
  return { client, letters };
}

test('a message is failed, taken and done', async () => {
  const { client, letters } = await ledger();
  const verdict = await letters.fail('shop/1', 'timeout', { payload: Uint8Array.of(0, 255), kind: 'order', headers: 'h', schema: 3 });
  assert.deepEqual(verdict, { verdict: 'retry', attempt: 1, delayMs: 100 });
  const [letter] = await letters.take({ count: 5, wait: 5000 });
  assert.deepEqual([letter.id, [...letter.payload], letter.headers.toString(), letter.kind], ['shop/1', [0, 255], 'h', 'order']);
  assert.deepEqual([letter.attempt, letter.lapses, letter.error, letter.failureClass, letter.schema], [1, 0, 'timeout', 'transient', 3]);
  assert.equal(typeof letter.fence, 'bigint');
  assert.equal(letter.isLost, false);
  await letter.done();
  assert.equal(await letters.standing('shop/1'), 'done');
  await assert.rejects(letter.done(), /settled before/);
  await client.shutdown();
});

test('what a ledger refuses has errors of its own', async () => {
  const { client, letters } = await ledger();
  await letters.fail('1', new RangeError('too far'), { payload: 'x' });
  assert.equal((await letters.get('1')).lastError, 'RangeError: too far');
  assert.deepEqual(await letters.fail('1', 'e', { payload: 'x' }), { verdict: 'known', state: 'waiting', attempt: 1 });
  await assert.rejects(letters.fail('1', 'e', { payload: 'y' }), { code: 'LEDGER_CONFLICT', resource: 'orders' });
  await assert.rejects(letters.fail('2', 'e', { payload: Buffer.alloc((16 << 20) + 1) }), { code: 'PAYLOAD_TOO_BIG' });
  await assert.rejects(letters.redrive(7), { code: 'REDRIVE_REFUSED', reason: 'case' });
  await client.shutdown();
});

test('a loop settles each message by its handlers outcome', async () => {
  const { client, letters } = await ledger();
  for (const id of ['0', '1', '2', '3']) await letters.fail(id, 'e', { payload: id });
  const seen = [];
  const handler = async (message, { signal }) => {
    assert.equal(signal.aborted, false);
    seen.push(message.payload.toString());
    if (message.id === '1') throw new RangeError('bad');
    if (message.id === '2') throw new CancelledError('later');
    if (seen.length >= 4) setTimeout(() => client.shutdown(5000), 50);
  };
  const judge = (error) => (error instanceof RangeError ? { count: 'final', group: 'ranges' } : undefined);
  const report = await letters.run(handler, { judge });
  assert.equal(report.done, 2);
  assert.equal(report.failed, 1);
  assert.ok(report.givenBack >= 1);
});

test('entries come singly, and those not wanted go back', async () => {
  const { client, letters } = await ledger();
  for (const id of ['0', '1', '2']) await letters.fail(id, 'e', { payload: id });
  for await (const letter of letters.entries()) {
    await letter.done();
    break;
  }
  const taken = await letters.take({ count: 5, wait: 5000 });
  assert.equal(taken.length, 2);
  assert.deepEqual(taken.map((letter) => letter.lapses), [0, 0]);
  await Promise.all(taken.map((letter) => letter.giveBack('1m')));
  assert.deepEqual(await letters.take(), []);
  await client.shutdown();
});

test('an aborted take or loop holds nothing back', async () => {
  const { client, letters } = await ledger();
  await assert.rejects(letters.take({ wait: 60_000, signal: AbortSignal.timeout(50) }), { code: 'CANCELLED' });
  await letters.fail('1', 'e', { payload: 'x' });
  const control = new AbortController();
  const handler = () => new Promise(() => { setTimeout(() => control.abort(), 10); });
  await assert.rejects(letters.run(handler, { signal: control.signal }), { code: 'CANCELLED' });
  const [again] = await letters.take({ wait: 5000 });
  assert.deepEqual([again.attempt, again.lapses], [1, 0]);
  await again.done();
  await client.shutdown();
});

test('what died is diagnosed, redriven and resolved', async () => {
  const { client, letters } = await ledger();
  const dead = await letters.fail('1', 'boom', { payload: 'x', kind: 't', count: 'final' });
  assert.deepEqual(dead, { verdict: 'dead', deaths: 1, group: 't/boom', reason: 'final' });
  const number = await letters.diagnose({ groups: [dead.group], category: 'contract', cause: 'a renamed field', fix: 'both names are read' });
  assert.deepEqual((await letters.dryRun(number)).sample, ['1']);
  const redrive = await letters.redrive(number, { rate: { count: 100, period: '1m' } });
  assert.deepEqual([redrive.case, redrive.matched.matched], [number, 1]);
  const [letter] = await letters.take({ wait: 10_000 });
  assert.deepEqual([letter.case, letter.deaths], [number, 1]);
  await letter.done();
  const progress = await redrive.finished();
  assert.deepEqual([progress.phase, progress.resolved, progress.rate], ['finished', 1, { count: 100, periodMs: 60_000 }]);
  assert.equal(await letters.close(number), 0);
  assert.equal((await letters.case(number)).actor, 'ada');
  assert.deepEqual((await letters.groups()).map((row) => row.group), ['t/boom']);
  assert.equal((await letters.info()).resolved, 1);
  const ids = [];
  for await (const view of letters.listAll({ state: 'resolved', limit: 1 })) ids.push(view.id);
  assert.deepEqual(ids, ['1']);
  assert.deepEqual(await letters.list({ state: 'dead' }), { letters: [], cursor: null });
  assert.ok((await letters.audit()).some((row) => row.action.startsWith('redrive')));
  assert.equal(await letters.by('bob').hold('1', 'audit'), 1);
  assert.equal(await letters.release('1'), 1);
  assert.equal((await letters.config()).business.retries, 3);
  await client.shutdown();
});

test('nonsense is refused by name', async () => {
  const { client, letters } = await ledger();
  const calls = [
    () => letters.fail(7, 'e'), () => letters.fail('1', 7), () => letters.fail('1', 'e', { payload: 7 }), () => letters.fail('1', 'e', { whatever: 1 }),
    () => letters.fail('1', 'e', { failureClass: 'odd' }), () => letters.fail('', 'e'), () => letters.take({ count: 'many' }), () => letters.take({ count: 0 }),
    () => letters.take({ wait: -1 }), () => letters.take({ until: 1 }), () => letters.run(7), () => letters.run(() => {}, { judge: 7 }), () => letters.list({ state: 'gone' }),
    () => letters.redrive('x'), () => letters.purge('1d'), () => letters.diagnose({ groups: 'g' }), () => letters.configure({ jitter: 'some' }), () => letters.seen(-1),
  ];
  for (const call of calls) {
    await assert.rejects(call, (error) => ['INVALID_ARGUMENT', 'INVALID_POLICY'].includes(error.code), call.toString());
  }
  assert.throws(() => client.deadLetters('x', { lease: 0 }), /lease/);
  await client.shutdown();
});
