/** What is given is understood, or refused by its name: surplus arguments, generators, signals in the wrong place. And what retries and fallbacks throw. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { InvalidArgumentError, RetryExhaustedError, bulkhead, connect, dispatcher, fallback, handleAll, perHour, retry, timeout, wrap } from 'resil';

const client = await connect('memory://');

async function refused(run, ...words) {
  let error;
  try {
    await run();
  } catch (caught) {
    error = caught;
  }
  assert.ok(error instanceof InvalidArgumentError && error instanceof TypeError, `${run}: ${error}`);
  for (const word of words) assert.ok(error.message.includes(word), `${error.message} says nothing of ${word}`);
}

test('an argument too many is refused, not ignored', async () => {
  await refused(() => client.limiter('l', perHour(1), { whenAway: 'closed' }), 'limiter takes 2 arguments, got 3');
  await refused(() => client.breaker('b', {}, 1), 'breaker');
  await refused(() => client.lock('l', {}, 1), 'lock');
  await refused(() => client.policy('p', { shed: 1 }, { on: handleAll }), 'policy');
  await refused(() => connect('memory://', {}, {}), 'connect');
  await refused(() => retry({ on: handleAll }, {}), 'retry');
  await refused(() => timeout(5, { name: 'x' }), 'timeout');
  for (const guard of [client.breaker('b'), retry({ on: handleAll }), client.lock('l'), wrap(client.breaker('b'), timeout(50))]) {
    let runs = 0;
    await refused(() => guard.call(() => { runs += 1; }, {}, 'ann'), 'call takes 2 arguments, got 3', '"ann"');
    await refused(() => guard.wrap(() => 1, {}, 'ann'), 'wrap');
    assert.equal(runs, 0);
  }
  const limiter = client.limiter('l', perHour(9));
  await refused(() => limiter.check('ann', 1, {}, 1), 'check');
  await refused(() => client.cached('c').get('k', () => 1, {}, 1), 'get');
  await refused(() => client.idempotent('i').run('k', 'x', () => 1, {}, 1), 'run');
});

test('a signal in place of options is refused', async () => {
  const { signal } = new AbortController();
  await refused(() => client.breaker('b').call(() => 1, signal), 'options must be an object such as { signal }');
  await refused(() => client.limiter('l', perHour(9)).check('ann', 1, signal), '{ signal }');
  await refused(() => client.cached('c').get('k', () => 1, signal), '{ signal }');
  await refused(() => client.lock('l').acquire(signal), '{ signal }');
  await refused(() => client.idempotent('i').run('k', 'x', () => 1, signal), '{ signal }');
});

test('a generator function is refused, wrapped or called', async () => {
  const generators = [function* () { yield 1; }, async function* () { yield 1; }];
  const guards = [retry({ on: handleAll }), client.breaker('b'), timeout(50), bulkhead({ maxConcurrentCalls: 1 }), client.lock('l'), wrap(client.breaker('b'), timeout(50)), client.policy('p', { shed: 3 })];
  for (const fn of generators) {
    for (const guard of guards) {
      await refused(() => guard.wrap(fn), 'fn', 'generator');
      await refused(() => guard.call(fn), 'fn', 'generator');
      await refused(() => guard.call(fn, {}), 'fn', 'generator');
    }
    await refused(() => wrap(retry({ on: handleAll }), fn), 'generator');
    await refused(() => client.idempotent('i').run('k', 'x', fn), 'work', 'generator');
    await refused(() => client.cached('c').get('k', fn), 'loader', 'generator');
    await refused(() => dispatcher(2).run([1], fn), 'work', 'generator');
  }
  const list = await retry({ on: handleAll }).call(async () => { const all = []; for await (const one of generators[1]()) all.push(one); return all; });
  assert.deepEqual(list, [1], 'a function that reads it to its end is fine');
});

test('with reraise the last error comes out as it is', async () => {
  const errors = [];
  const failing = () => { errors.push(new RangeError(`x${errors.length}`)); throw errors.at(-1); };
  const last = (guard) => guard.call(failing).catch((error) => error);
  const settings = { maxAttempts: 2, initialBackoff: 1 };
  assert.equal(await last(retry({ on: handleAll, ...settings, reraise: true })), errors.at(-1));
  assert.equal(await last(wrap(client.breaker('calm', { consecutiveFailures: 0, failureRate: 0, slowCallRate: 100, slowCallDuration: 60_000 }), retry({ on: handleAll, ...settings, reraise: true }))), errors.at(-1));
  const reraising = { ...settings, reraise: true };
  assert.equal(await last(client.policy('r', { on: handleAll, retry: reraising })), errors.at(-1));
  assert.equal(await last(client.policies({ version: 1, policies: { r: { retry: reraising } } }).policy('r', { on: handleAll })), errors.at(-1));
  assert.ok((await last(retry({ on: handleAll, ...settings }))) instanceof RetryExhaustedError);
  assert.equal(await client.policy('r', { on: handleAll, retry: reraising }).callOnce(client.idempotent('r'), 'k', undefined, failing).catch((error) => error), errors.at(-1));
  assert.throws(() => retry({ on: handleAll, reraise: 'yes' }), /reraise/);
});

test('a failed fallback keeps the replaced failure as cause', async () => {
  const down = new Error('down');
  const boom = () => { throw down; };
  for (const instead of [() => { throw new Error('no cache'); }, async () => { throw new Error('no cache'); }]) {
    const error = await fallback(instead).call(boom).catch((caught) => caught);
    assert.deepEqual([error.message, error.cause], ['no cache', down]);
  }
  const own = await fallback((error) => { throw error; }).call(boom).catch((caught) => caught);
  assert.deepEqual([own, own.cause], [down, undefined], 'the same error has no cause in itself');
  const first = new Error('first');
  const kept = await fallback(() => { throw new Error('second', { cause: first }); }).call(boom).catch((caught) => caught);
  assert.equal(kept.cause, first, 'a cause that is said stays');
  const frozen = Object.freeze(new Error('frozen'));
  assert.equal(await fallback(() => { throw frozen; }).call(boom).catch((caught) => caught), frozen);
});

test('jitter can be an object, and spans can be text', async () => {
  for (const jitter of ['20%', { plusMinus: 20 }]) {
    let runs = 0;
    await retry({ on: handleAll, jitter, initialBackoff: '1ms', maxBackoff: '2ms', maxElapsed: '5s', budget: { ttl: '10s' } }).call(() => { if (++runs < 2) throw new Error('x'); });
    assert.equal(runs, 2);
  }
  client.policy('j', { on: handleAll, retry: { jitter: { plusMinus: 5 } } });
  for (const jitter of [{}, { plusMinus: '20' }, { plusMinus: 101 }, { percent: 20 }]) assert.throws(() => retry({ on: handleAll, jitter }), /jitter/);
});
