/** Results that are kept: what comes back is what was returned, or everybody learns that it is not. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import vm from 'node:vm';

import { IdempotencyMismatchError, InvalidArgumentError, ResultUnrecordedError, handleAll } from 'resil';
import { onBoth } from './servers.mjs';

class Money { constructor(cents) { this.cents = cents; } }
const cyclic = { name: 'cyclic' };
cyclic.self = cyclic;

/** What JSON would make something else of, and where that is. */
const NOT_JSON = {
  'a bigint': [10n, 'the value'],
  'a map': [new Map([[1, 2]]), 'the value'],
  'a set': [{ tags: new Set(['a']) }, 'the value.tags'],
  'NaN': [{ rates: [1, NaN] }, 'the value.rates[1]'],
  'infinity': [-Infinity, 'the value'],
  'undefined inside of an array': [[1, undefined], 'the value[1]'],
  'undefined inside of an object': [{ note: undefined }, 'the value.note'],
  'a hole': [[1, , 3], 'the value[1]'],
  'a date': [{ at: new Date(0) }, 'the value.at'],
  'bytes': [Buffer.from('x'), 'the value'],
  'an instance': [new Money(7), 'the value'],
  'an array of a class': [class extends Array {}.from([1]), 'the value'],
  'a function': [{ then: 1, run: () => 1 }, 'the value.run'],
  'a symbol': [Symbol('s'), 'the value'],
  'a circle': [cyclic, 'the value.self'],
  'an error': [new Error('x'), 'the value'],
};

for (const [what, [value, at]] of Object.entries(NOT_JSON)) {
  onBoth(test, `a result with ${what} is refused, not done twice`, async (client, name) => {
    const orders = client.idempotent('refused');
    let runs = 0;
    const run = () => orders.run(name, undefined, () => { runs += 1; return value; });
    const error = await run().catch((caught) => caught);
    assert.ok(error instanceof ResultUnrecordedError, String(error));
    assert.ok(error.message.includes(`${at} `), error.message);
    assert.equal(error.result, value, 'who did it has it');
    assert.ok(error.cause instanceof TypeError);
    const again = await run().catch((caught) => caught);
    assert.ok(again instanceof ResultUnrecordedError && again.message.includes(`${at} `) && again.result === undefined, String(again));
    assert.deepEqual([again.code, again.httpStatus, again.retryable], ['RESULT_UNRECORDED', 409, false]);
    assert.equal(runs, 1);
  });
}

onBoth(test, 'a load’s value outside of JSON is refused once', async (client, name) => {
  const [cached, versioned] = [client.cached('refused', { errorTtl: 0 }), client.versionedCached('refusedToo', { errorTtl: 0 })];
  for (const [at, value] of [new Map(), { at: new Date(0) }, [NaN], 10n].entries()) {
    for (const load of [() => cached.get(`${name}${at}`, () => value), () => versioned.get(`${name}${at}`, () => ({ version: 1, value }))]) {
      await assert.rejects(load(), (error) => error instanceof InvalidArgumentError && /the value/.test(error.message));
    }
  }
  assert.equal(await cached.get(`${name}fine`, () => 'fine'), 'fine');
});

onBoth(test, 'what JSON has comes back as it was, also nothing', async (client, name) => {
  const orders = client.idempotent('plain');
  const foreign = vm.runInNewContext('({ list: [1, { a: null }], text: "ä€😀" })');
  const values = [undefined, null, 0, -1.5, 2 ** 53, '', 'ä€\ud800', false, [], {}, [[null]], { a: { b: [1, 'x', true, null] } }, Object.assign(Object.create(null), { a: 1 }), JSON.parse('{"__proto__":1}')];
  for (const [at, value] of values.entries()) {
    for (let run = 0; run < 2; run += 1) {
      const { value: got, replayed } = await orders.run(`${name}${at}`, undefined, () => value);
      assert.deepEqual([JSON.stringify(got), replayed], [JSON.stringify(value ?? null), run === 1]);
    }
  }
  for (let run = 0; run < 2; run += 1) assert.deepEqual(JSON.stringify((await orders.run(`${name}f`, undefined, () => foreign)).value), JSON.stringify(foreign), 'of another realm');
});

onBoth(test, 'structured clone keeps what JSON lacks, in Node', async (client, name) => {
  const value = { at: new Date(7), big: 2n ** 70n, map: new Map([['a', new Set([1])]]), bytes: new Uint8Array([1, 255]), nothing: undefined, not: NaN };
  const orders = client.idempotent('cloned', { serializer: 'v8' });
  for (let run = 0; run < 2; run += 1) assert.deepStrictEqual((await orders.run(name, undefined, () => value)).value, value);
  const cached = client.cached('cloned', { serializer: 'v8' });
  for (let run = 0; run < 2; run += 1) assert.deepStrictEqual(await cached.get(name, () => value), value);
  for (const odd of [new Money(1), { deep: [new Money(1)] }, new Map([['a', new Money(1)]]), () => 1]) {
    await assert.rejects(orders.run(`${name}${String(odd)}`, undefined, () => odd), ResultUnrecordedError);
  }
  await assert.rejects(client.idempotent('cloned').run(name, undefined, () => 1), /cannot be read by this serializer/);
});

onBoth(test, 'a custom serializer serves runs, loads and policies', async (client, name) => {
  const serializer = { serialize: (value) => `${value.cents}`, deserialize: (bytes) => new Money(Number(Buffer.from(bytes).toString())) };
  const orders = client.idempotent('own', { serializer });
  for (let run = 0; run < 2; run += 1) {
    const { value } = await orders.run(name, undefined, () => new Money(7));
    assert.ok(value instanceof Money && value.cents === 7);
  }
  const policy = client.policy('own', { on: handleAll, retry: { maxAttempts: 2 } });
  for (let run = 0; run < 2; run += 1) {
    const { value, replayed } = await policy.callOnce(orders, `${name}p`, undefined, () => new Money(8));
    assert.ok(value instanceof Money && value.cents === 8 && replayed === (run === 1));
  }
  const cached = client.cached('own', { serializer });
  for (let run = 0; run < 2; run += 1) assert.equal((await cached.get(name, () => new Money(9))).cents, 9);
  const broken = client.idempotent('broken', { serializer: { ...serializer, serialize: () => 7 } });
  await assert.rejects(broken.run(name, undefined, () => 1), ResultUnrecordedError);
  for (const odd of ['yaml', 7, null, {}, { serialize() {} }]) assert.throws(() => client.idempotent('x', { serializer: odd }), /serializer/);
});

class Declined extends Error {
  constructor(message, reason, amount) {
    super(message);
    this.name = 'Declined';
    this.reason = reason;
    this.code = 'E51';
    this.amount = amount;
    this.socket = new Map();
  }
}
const isFinal = (error) => error instanceof Declined;

onBoth(test, 'an error that is final comes back with its properties', async (client, name) => {
  const cards = client.idempotent('cards', { remember: { isFinal } });
  const first = await cards.run(name, undefined, () => { throw new Declined('no funds', { code: 51 }, 700); }).catch((error) => error);
  assert.ok(first instanceof Declined);
  const again = await cards.run(name, undefined, () => 'paid').catch((error) => error);
  assert.deepEqual([again.name, again.message, again.code, again.reason, again.amount, again.socket], ['Declined', 'no funds', 'E51', { code: 51 }, 700, undefined]);
  const { result } = await cards.get(name);
  assert.deepEqual(JSON.parse(Buffer.from(result)), { name: 'Declined', message: 'no funds', args: ['no funds'], code: 'E51', properties: { reason: { code: 51 }, amount: 700 } });
});

onBoth(test, 'a whole policy remembers what is final', async (client, name) => {
  const policy = client.policy('declining', { on: handleAll, retry: { maxAttempts: 3, initialBackoff: 1 } });
  const cards = client.idempotent('cards', { remember: { isFinal } });
  let runs = 0;
  const pay = () => policy.callOnce(cards, name, undefined, () => { runs += 1; throw new Declined('no funds', 51, 700); }).catch((error) => error);
  assert.ok((await pay()) instanceof Declined);
  const again = await pay();
  assert.deepEqual([again.name, again.reason, runs], ['Declined', 51, 1]);
  let others = 0;
  await assert.rejects(policy.callOnce(cards, `${name}o`, undefined, () => { others += 1; throw new Error('a hiccup'); }), /all 3 attempts/);
  assert.equal((await policy.callOnce(cards, `${name}o`, undefined, () => 'paid')).value, 'paid', 'what is not final frees its key');
  assert.equal(others, 3);
  for (let run = 0; run < 2; run += 1) await assert.rejects(policy.callOnce(cards, `${name}n`, undefined, () => { runs += 1; return new Map(); }), ResultUnrecordedError);
  assert.equal(runs, 2);
  for (let run = 0; run < 2; run += 1) assert.equal((await policy.callOnce(cards, `${name}u`, undefined, () => undefined)).value, null);
});

onBoth(test, 'key order makes no other request, values do', async (client, name) => {
  const orders = client.idempotent('fingerprints');
  await orders.run(name, { a: 1, b: { c: [1, { d: 2, e: 3 }], 'ä': 1, '😀': 2 } }, () => 1);
  assert.equal((await orders.run(name, { b: { '😀': 2, 'ä': 1, c: [1, { e: 3, d: 2 }] }, a: 1, gone: undefined }, () => 2)).replayed, true);
  for (const other of [{ a: 1, b: { c: [{ d: 2, e: 3 }, 1], 'ä': 1, '😀': 2 } }, { a: '1' }, [], null]) {
    await assert.rejects(orders.run(name, other, () => 1), IdempotencyMismatchError);
  }
  await orders.run(`${name}d`, { at: new Date(0) }, () => 1);
  await assert.rejects(orders.run(`${name}d`, { at: new Date(1) }, () => 1), IdempotencyMismatchError, 'what says how it is written is asked');
  for (const odd of [{ a: new Map() }, { a: [10n] }, { rate: NaN }, cyclic, () => 1]) {
    await assert.rejects(orders.run(`${name}x`, odd, () => 1), (error) => error instanceof InvalidArgumentError && /request/.test(error.message));
  }
});

onBoth(test, 'errors that Python and Rust recorded are read', async (client, name) => {
  const payments = client.idempotent('foreign', { remember: { isFinal: () => true, write: (error) => error.recorded } });
  const reader = client.idempotent('foreign', { remember: { isFinal: () => true } });
  const forms = [
    [{ name: 'CardDeclined', message: 'no funds', args: ['no funds', 7], code: '51' }, ['CardDeclined', 'no funds', '51', ['no funds', 7]]],
    [{ error: 'ValueError', message: 'no' }, ['ValueError', 'no', undefined, undefined]],
  ];
  for (const [at, [recorded, expected]] of forms.entries()) {
    await assert.rejects(payments.run(`${name}${at}`, undefined, () => { throw Object.assign(new Error('x'), { recorded }); }));
    const again = await reader.run(`${name}${at}`, undefined, () => 1).catch((error) => error);
    assert.deepEqual([again.name, again.message, again.code, again.args], expected);
  }
});
