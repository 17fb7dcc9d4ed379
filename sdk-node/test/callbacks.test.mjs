/** Functions of the user that throw, whatever they throw and whenever: only the call they belong to fails, and nothing is hidden. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { connect, fallback, perHour, retry, timeout, wrap } from 'resil';
import { frameworks, order } from './middleware_apps.mjs';
import { never, settled, until } from './waiting.mjs';

const BOUND = { timeout: 60_000 };
const proxy = () => new Proxy({}, { get() { throw new Error('trap'); }, getPrototypeOf() { throw new Error('trap'); } });
/** What may be thrown; `'route'` and `undefined` mean something else to Express. */
const THROWN = { 'an error': () => new Error('broken'), one: () => 1, undefined: () => undefined, null: () => null, text: () => 'route', 'a proxy': proxy };

/** Fails if anything reaches the process while `run` runs. */
async function quietly(run) {
  const heard = [];
  const hear = (error) => heard.push(error);
  process.on('uncaughtException', hear).on('unhandledRejection', hear);
  try {
    await run();
    await new Promise((resolve) => setTimeout(resolve, 20));
  } finally {
    process.off('uncaughtException', hear).off('unhandledRejection', hear);
  }
  assert.deepEqual(heard, []);
}

for (const [framework, start] of Object.entries(frameworks)) {
  describe(framework, BOUND, () => {
    for (const [what, make] of Object.entries(THROWN)) {
      test(`a middleware callback that throws ${what} ends its request`, () => quietly(async () => {
        const client = await connect('memory://');
        const limiter = client.limiter('api', perHour(100));
        const faults = [
          { tier: () => { throw make(); } },
          { tier: async () => { throw make(); } },
          { tier: () => ({ limiter, get key() { throw make(); } }) },
          ...['tenant', 'required', 'keepResponses'].flatMap((name) => [() => { throw make(); }, async () => { throw make(); }]
            .map((fault) => ({ orders: { client, name: 'orders', tenant: () => 'ann', [name]: fault } }))),
        ];
        for (const fault of faults) {
          let isBroken = true;
          const orders = fault.orders && Object.fromEntries(Object.entries(fault.orders)
            .map(([name, value]) => [name, typeof value === 'function' && name !== 'tenant' && name !== 'name' ? (...args) => (isBroken ? value(...args) : name === 'required') || name === 'keepResponses' : value]));
          const app = await start({ ...fault, orders, work: () => ({ body: 'done' }) });
          const key = fault.orders?.required ? undefined : `k-${what}-${Math.random()}`;
          const response = await order(app.url, key, 'body');
          assert.equal(response.status, 500, `${Object.keys(fault.orders ?? fault)}`);
          isBroken = false;
          if (fault.orders?.keepResponses) assert.equal((await order(app.url, key, 'body')).status, 200, 'the key is free again');
          await app.close();
        }
        await client.shutdown(100);
      }));
    }

    test('a keepResponses that throws is reported to the process', () => quietly(async () => {
      const warnings = [];
      const hear = (warning) => warnings.push(warning);
      process.on('warning', hear);
      const client = await connect('memory://');
      const app = await start({ orders: { client, name: 'orders', tenant: () => 'ann', keepResponses: () => { throw 1; } }, work: () => ({ body: 'done' }) });
      assert.equal((await order(app.url, 'k', 'body')).status, 500);
      await until(() => warnings.length > 0);
      process.off('warning', hear);
      assert.match(warnings[0].message, /keepResponses threw 1/);
      assert.equal(warnings[0].thrown, 1);
      await app.close();
      await client.shutdown(100);
    }));
  });
}

test('a judge that throws gets the calls error as cause', () => quietly(async () => {
  const client = await connect('memory://');
  const down = new Error('down');
  const fail = () => { throw down; };
  for (const [what, make] of Object.entries(THROWN)) {
    for (const judge of [() => { throw make(); }, async () => { throw make(); }]) {
      const calls = {
        on: () => retry({ on: judge }).call(fail),
        ignore: () => client.breaker(`ignore-${what}`, { ignore: judge }).call(fail),
        when: () => fallback('instead', { when: judge }).call(fail),
        'on of a policy': () => client.policy(`p-${what}`, { on: judge, retry: {} }).call(fail),
        isFinal: () => client.idempotent('work', { remember: { isFinal: judge } }).run(`k-${what}-${Math.random()}`, undefined, fail),
        write: () => client.idempotent('work', { remember: { isFinal: () => true, write: judge } }).run(`w-${what}-${Math.random()}`, undefined, fail),
        'isFinal of callOnce': () => client.policy(`o-${what}`, {}).callOnce(client.idempotent('work', { remember: { isFinal: judge } }), `o-${what}-${Math.random()}`, undefined, fail),
      };
      for (const [name, call] of Object.entries(calls)) {
        const error = await settled(call()).then(() => assert.fail(`${name} with ${what}: it has to fail`), (caught) => caught);
        assert.equal(error.cause, down, `${name} with ${what}: ${error.stack}`);
      }
    }
  }
  await client.shutdown(100);
}));

test('whatever a function throws comes through, and releases', () => quietly(async () => {
  const client = await connect('memory://');
  const careful = wrap(timeout('5s'), retry({ on: () => false }), client.lock('one', { wait: '1s' }), client.breaker('b', { failureRate: 0, consecutiveFailures: 100 }));
  for (const make of Object.values(THROWN)) {
    const value = make();
    const error = await settled(careful.call(() => { throw value; })).then(() => assert.fail('it has to fail'), (caught) => [caught]);
    assert.ok(Object.is(error[0], value));
    const later = await settled(careful.call(async () => { throw value; })).then(() => assert.fail('it has to fail'), (caught) => [caught]);
    assert.ok(Object.is(later[0], value));
  }
  assert.equal((await client.lock('one').info()).holdersTotal, 0);
  await client.shutdown(100);
}));

test('idempotent work that throws whatever it likes frees its key', () => quietly(async () => {
  const client = await connect('memory://');
  for (const [what, make] of Object.entries(THROWN)) {
    for (const options of [{}, { remember: { isFinal: () => false } }]) {
      const [work, value] = [client.idempotent('w', options), make()];
      const came = await settled(work.run(what, undefined, () => { throw value; })).then(() => assert.fail('it has to fail'), (caught) => [caught]);
      assert.ok(Object.is(came[0], value), what);
      assert.equal((await work.get(what)).state, 'unknown', what);
    }
  }
  await client.shutdown(100);
}));

test('a signal whose properties throw fails only its call', () => quietly(async () => {
  const client = await connect('memory://');
  const lock = client.lock('one', { wait: 0 });
  const signals = [
    { get aborted() { throw new Error('one'); }, addEventListener() {}, removeEventListener() {} },
    { aborted: false, addEventListener() { throw new Error('one'); }, removeEventListener() {} },
    { aborted: true, get reason() { throw new Error('one'); }, addEventListener() {}, removeEventListener() {} },
  ];
  for (const signal of signals) await assert.rejects(async () => settled(lock.call(() => never(), { signal })));
  const late = { aborted: false, addEventListener() {}, removeEventListener() { throw 1; } };
  assert.equal(await settled(lock.call(() => 'done', { signal: late })), 'done');
  await until(async () => (await lock.info()).holdersTotal === 0);
  await client.shutdown(100);
}));

test('serializers and loaders that throw fail their call alone', () => quietly(async () => {
  const client = await connect('memory://');
  for (const make of Object.values(THROWN)) {
    const bad = { serialize() { throw make(); }, deserialize() { throw make(); } };
    const failed = async (promise) => settled(promise).then(() => assert.fail('it has to fail'), () => {});
    await failed(client.cached('c', { serializer: bad }).get(`k${Math.random()}`, () => 1));
    await failed(client.cached('c').get(`k${Math.random()}`, () => { throw make(); }));
    const run = client.idempotent('w', { serializer: bad }).run(`k${Math.random()}`, undefined, () => 1);
    assert.equal((await settled(run).catch((error) => error)).code, 'RESULT_UNRECORDED');
  }
  await client.shutdown(100);
}));
