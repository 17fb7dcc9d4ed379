/** What other languages wrote, and what JSON does not have: exact, or refused by its place. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { connect, fallback, InternalError, InvalidArgumentError, InvalidPolicyError, ResultUnrecordedError, timeout } from 'resil';
import { onBoth } from './servers.mjs';

/** Writes bytes as another language would. */
const raw = { serialize: (text) => Buffer.from(text), deserialize: (bytes) => bytes.toString() };

/** JSON that JavaScript cannot hold, and where. */
const INEXACT = {
  '9007199254740993': 'the value',
  '-9007199254740993': 'the value',
  '{"id":"9007199254740993","n":{"big":[1,9007199254740993]}}': 'the value.n.big[1]',
  '[[],{},"a,b]}\\"",{"x":18446744073709551615}]': 'the value[3].x',
  [`[0,1${'0'.repeat(400)}]`]: 'the value[1]',
  '{"a":1e400}': 'the value.a',
  '{"a":1e-400}': 'the value.a',
};
const EXACT = [
  '9007199254740992', '9007199254740991', '1152921504606846976', '1e5', '1E+2', '0.1', '3.141592653589793', '0.10000000000000001', '-0.0', '0e9', '1e308',
  '"9007199254740993"', '{"9007199254740993":1}', '["1e400",{"a":"\\"9007199254740993"}]', '100000000000000000000', 'null',
];

onBoth(test, 'a number outside of JavaScript is refused by place', async (client, name) => {
  const [write, read] = [client.idempotent('exact', { serializer: raw }), client.idempotent('exact')];
  const [load, get] = [client.cached('exact', { serializer: raw }), client.cached('exact')];
  for (const [text, at] of Object.entries(INEXACT)) {
    const key = `${name}${text.slice(0, 30)}`;
    await write.run(key, undefined, () => text);
    const refused = (Class) => (error) => error instanceof Class && error.message.includes(`${at} is `) && error.message.includes('no number of JavaScript');
    await assert.rejects(read.run(key, undefined, () => assert.fail('it is done')), refused(ResultUnrecordedError), text);
    await load.get(key, () => text);
    await assert.rejects(get.get(key, () => assert.fail('it is loaded')), refused(InternalError), text);
  }
});

onBoth(test, 'numbers that JavaScript has come back as they were written', async (client, name) => {
  const [write, read] = [client.idempotent('exact', { serializer: raw }), client.idempotent('exact')];
  for (const text of EXACT) {
    await write.run(`${name}${text}`, undefined, () => text);
    assert.deepEqual((await read.run(`${name}${text}`, undefined, () => assert.fail('it is done'))).value, JSON.parse(text));
  }
});

onBoth(test, 'keys that JSON lacks are refused by their names', async (client, name) => {
  const orders = client.idempotent('keys');
  const refused = {
    'the value.a has Symbol(mark) as a key': { a: { [Symbol('mark')]: 1 } },
    'the value has Symbol(mark) as a key': Object.assign([1], { [Symbol('mark')]: 1 }),
    'the value.list.total is a property of an array': { list: Object.assign([1, 2], { total: 3 }) },
    'the value is a Generator,': (function* () { yield 1; })(),
    'the value is a AsyncGenerator,': (async function* () { yield 1; })(),
  };
  for (const [words, value] of Object.entries(refused)) {
    await assert.rejects(orders.run(`${name}${words}`, undefined, () => value), (error) => error instanceof ResultUnrecordedError && error.message.includes(words), words);
  }
  const hidden = Object.defineProperty({ a: 1 }, Symbol('hidden'), { value: 1 });
  assert.deepEqual((await orders.run(`${name}hidden`, undefined, () => hidden)).value, { a: 1 });
});

onBoth(test, 'minus zero comes back as zero', async (client, name) => {
  const orders = client.idempotent('zero');
  await orders.run(name, undefined, () => -0);
  assert.equal(Object.is((await orders.run(name, undefined, () => 1)).value, 0), true);
});

test('a fallback that is a generator function is refused', () => {
  for (const instead of [function* () { yield 1; }, async function* () { yield 1; }]) {
    assert.throws(() => fallback(instead), (error) => error instanceof InvalidArgumentError && /instead.*generator function/.test(error.message));
  }
});

test('a duration as text has a unit', async () => {
  const client = await connect('memory://');
  for (const text of ['50', '0.5', '1000']) {
    assert.throws(() => timeout(text), (error) => error instanceof InvalidPolicyError && error.field === 'after');
    assert.throws(() => client.lock('x', { lease: text }), (error) => error instanceof InvalidPolicyError && error.field === 'lease');
    assert.throws(() => client.policy('x', { timeout: { total: text } }), InvalidPolicyError);
    await assert.rejects(client.lock('x').acquire({ wait: text }), InvalidPolicyError);
  }
  assert.equal(timeout('50ms').afterMs, 50);
  await (await client.lock('x').acquire({ wait: '0' })).release();
  await client.shutdown();
});
