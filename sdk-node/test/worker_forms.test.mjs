/** Older forms of messages, and messages that are dropped: workers on a ledger in memory. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { connect, InvalidArgumentError, InvalidPolicyError, telemetry, Upcasters, WorkError } from 'resil';

const LEDGER = 'orders';

async function withLetters(...forms) {
  const client = await connect('memory://');
  for (const [number, [kind, schema, payload]] of forms.entries()) {
    await client.deadLetters(LEDGER).fail(`shop/${number}`, 'sent', { payload, kind, schema, count: 'not-counted' });
  }
  return client;
}

/** Stops with the last of so many. */
async function untilHandled(worker, count, handle) {
  let seen = 0;
  return worker.run((message) => {
    seen += 1;
    if (seen === count) worker.stop();
    return handle(message);
  });
}

const appending = (text) => (payload) => Buffer.concat([payload, Buffer.from(text)]);
const same = (payload) => payload;

test('older messages are upgraded, and never written back', async () => {
  const client = await withLetters(['order', 1, 'a'], ['order', 2, 'b'], ['order', 3, 'c'], ['other', 1, 'd'], [undefined, undefined, 'e']);
  const upcasters = new Upcasters().step('order', 1, appending('2')).step('order', 2, (payload) => `${payload}3`);
  const worker = client.worker(LEDGER, { upcasters, workers: 1 });
  const seen = new Map();
  await untilHandled(worker, 5, (message) => {
    seen.set(message.id, [String(message.payload), message.schema]);
    throw new WorkError('kept', 'permanent');
  });
  assert.deepEqual([...seen.values()].map(([payload]) => payload).sort(), ['a23', 'b3', 'c', 'd', 'e']);
  assert.equal(seen.get('shop/0')[1], 1, 'the version that it was sent in');
  const letter = await client.deadLetters(LEDGER).get('shop/0');
  assert.equal(String(letter.payload), 'a', 'the ledger has what was sent');
  await client.shutdown();
});

test('chains that cannot work are refused at the start', async () => {
  const chains = [
    [new Upcasters().step('order', 1, same).step('order', 3, same), /no step for order from version 2/],
    [new Upcasters().step('order', 1, same).step('order', 1, same), /two steps for order from version 1/],
    [new Upcasters().step('order', 5, same), /cannot read shop\/0 in the ledger/],
  ];
  for (const [upcasters, why] of chains) {
    const client = await withLetters(['order', 1, 'a']);
    const refused = await client.worker(LEDGER, { upcasters }).run(() => {}).catch((error) => error);
    assert.ok(refused instanceof InvalidPolicyError, String(refused));
    assert.match(refused.message, why);
    await client.shutdown();
  }
});

test('steps are functions of a payload', async () => {
  for (const step of [['', 1, same], ['order', -1, same], ['order', 1.5, same], ['order', 1], ['order', 1, 7]]) {
    assert.throws(() => new Upcasters().step(...step), InvalidArgumentError);
  }
  const client = await connect('memory://');
  assert.throws(() => client.worker(LEDGER, { upcasters: [['order', 1, same]] }), InvalidArgumentError);
  await client.shutdown();
});

test('an upcaster that returns something else makes its message dead', async () => {
  const client = await withLetters(['order', 1, 'a'], [undefined, undefined, 'b']);
  const worker = client.worker(LEDGER, { upcasters: new Upcasters().step('order', 1, () => 7), workers: 2 });
  // Either may be due first: the worker stops when the one is dead and the other is in hand.
  const report = await worker.run(async (message) => {
    while ((await client.deadLetters(LEDGER).info()).dead < 1 && message.timeLeftMs > 240_000) await sleep(10);
    worker.stop();
  });
  assert.equal(report.done, 1);
  const letter = await client.deadLetters(LEDGER).get('shop/0');
  assert.match(letter.lastError, /neither a string nor a Uint8Array/);
  await client.shutdown();
});

test('a dropped message is counted, warned of and notified of', async () => {
  const client = await withLetters([undefined, undefined, 'old']);
  let tell;
  const heard = new Promise((resolve) => { tell = resolve; });
  const hooks = telemetry.hooks({ only: LEDGER, onDrop: tell });
  const warned = once(process, 'warning');
  const report = await untilHandled(client.worker(LEDGER), 1, () => { throw new WorkError('too old to matter', 'drop'); });
  const [warning] = await warned;
  const reported = await Promise.race([heard, sleep(20_000, undefined, { ref: false })]);
  await client.shutdown();
  hooks.close();
  assert.equal(report.dropped, 1);
  assert.deepEqual([reported?.name, reported?.id], [LEDGER, 'shop/0']);
  assert.match(reported.reason, /too old to matter/);
  assert.equal(warning.code, 'RESIL_DROPPED');
  assert.match(warning.message, /shop\/0 was dropped$/);
  const counted = telemetry.metrics().find(({ metric, labels }) => metric === 'resil_worker_messages_total' && labels.outcome === 'dropped');
  assert.equal(counted.value, 1);
});
