/** Stored policies: changed, followed and watched, on a real server and in memory; policies of a file that is watched. */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { connect, handleAll, telemetry } from 'resil';
import { Clock, Script } from 'resil/testing';
import { startServer } from './servers.mjs';

/** Longer than anything here takes, on a machine that has much else to do. */
const BOUND = 40_000;
const ONE = { retry: { maxAttempts: 1 } };
const attempts = (maxAttempts) => ({ retry: { maxAttempts, initialBackoff: '1us', maxBackoff: '1us', budget: null } });

async function until(what, isSo) {
  const end = Date.now() + BOUND;
  while (!isSo()) {
    assert.ok(Date.now() < end, `waited in vain until ${what}`);
    await sleep(5);
  }
}

/** On a server, and in memory. */
function onBoth(name, promise) {
  test(`${name}, on a server`, async () => promise((await startServer()).url));
  test(`${name}, in memory`, () => promise(`memory://${name.replaceAll(' ', '-')}`));
}

onBoth('a policy is set, read, listed, rolled back and deleted', async (url) => {
  const { policies } = await connect(url);
  assert.deepEqual(await policies.list(), []);
  assert.deepEqual(await policies.set('pay', ONE, { actor: 'ann', reason: 'first' }), { version: 1n, action: 'created' });
  assert.equal((await policies.set('pay', JSON.stringify(ONE))).action, 'same');
  assert.deepEqual(await policies.set('pay', attempts(2), { expecting: 1 }), { version: 2n, action: 'changed' });
  await assert.rejects(policies.set('pay', attempts(3), { expecting: 1n }), /VERSION/);
  const stored = await policies.get('pay', 1);
  assert.deepEqual([stored.name, stored.policy, stored.actor], ['pay', '{"retry":{"maxAttempts":1}}', 'ann']);
  assert.ok(Math.abs(stored.at - Date.now()) < 600_000);
  assert.deepEqual((await policies.list()).map((policy) => policy.name), ['pay']);
  assert.deepEqual(await policies.rollback('pay', 1), { version: 3n, action: 'changed' });
  assert.deepEqual(await policies.delete('pay', { expecting: 3 }), { version: 4n, action: 'deleted' });
  assert.equal(await policies.get('pay'), null);
  const history = await policies.history('pay');
  assert.deepEqual(history.map((record) => [record.version, record.isDeleted]), [[4n, true], [3n, false], [2n, false], [1n, false]]);
  assert.equal(history[1].reason, 'rolled back to version 1');
});

onBoth('a document that is wrong is named by its path', async (url) => {
  const { policies } = await connect(url);
  assert.equal(await policies.check({ retry: { max_attempts: 4 } }), '{"retry":{"maxAttempts":4}}');
  const wrong = { retry: { maxAttempts: 0 } };
  await assert.rejects(policies.check(wrong), /retry.maxAttempts must be from 1 to 100, got 0/);
  await assert.rejects(policies.set('pay', wrong), /retry.maxAttempts must be from 1 to 100, got 0/);
  await assert.rejects(policies.set('pay', 7), /document/);
});

onBoth('a bare number is refused in documents, and means milliseconds in code', async (url) => {
  const client = await connect(url);
  const unit = { code: 'INVALID_POLICY', message: /timeout.total must have a unit/ };
  for (const document of [{ timeout: { total: 2 } }, { timeout: { total: 0.5 } }, '{"timeout":{"total":2}}', { timeout: { total: '2' } }]) {
    await assert.rejects(client.policies.set('pay', document), unit);
  }
  const folder = mkdtempSync(join(tmpdir(), 'resil-units-'));
  const path = join(folder, 'policies.yaml');
  writeFileSync(path, 'policies: { pay: { timeout: { total: 2 } } }');
  assert.throws(() => client.policies.open(path), unit);
  assert.throws(() => client.policies(path), unit);
  rmSync(folder, { recursive: true });
  assert.deepEqual(await client.policies.list(), []);
  await assert.rejects(client.policy('code', { timeout: { total: 30 } }).call(() => sleep(BOUND, undefined, { ref: false })), { code: 'TIMEOUT' });
});

onBoth('a document that is missing by mistake is not stored', async (url) => {
  const client = await connect(url);
  const { policies } = client;
  await policies.set('pay', ONE);
  for (const call of [policies.set('pay'), policies.set('pay', undefined, { reason: 'a typing error' }), policies.check()]) {
    await assert.rejects(call, { code: 'INVALID_ARGUMENT', message: /document must be an object, or JSON, got undefined/ });
  }
  await assert.rejects(policies.set('pay', new Date()), /document must be a plain object/);
  await assert.rejects(client.policyOr('pay'), /settings must be an object, got undefined/);
  for (const call of [policies.list(1), policies.watch({}), policies.get('pay', 1, 2), policies.history('pay', 1)]) await assert.rejects(call, /takes \d arguments?, got/);
  assert.equal((await policies.get('pay')).version, 1n);
});

test('a version above 2^53 is not rounded', async () => {
  const stored = ['version', 9_007_199_254_740_993n, 'policy', '{"breaker":{"version":7}}', 'at_ms', 5, 'actor', 'ann', 'reason', '"version":8'];
  const found = await new Script().reply(stored).connect().policies.get('pay');
  assert.deepEqual([found.version, found.policy, found.reason], [9_007_199_254_740_993n, '{"breaker":{"version":7}}', '"version":8']);
});

onBoth('calls are shed by their priority', async (url) => {
  const client = await connect(url);
  await client.policies.set('pay', { timeout: { attempt: '30s' }, sharedBulkhead: { maxConcurrentCalls: 10 }, shedding: {} });
  const pay = await client.policy('pay');
  const leaving = new AbortController();
  let inside = 0;
  const held = Array.from({ length: 7 }, () => pay.call(() => { inside += 1; return new Promise(() => {}); }, { priority: 'critical', signal: leaving.signal }));
  await until('seven are inside', () => inside === 7);
  const seen = {};
  for (const priority of ['background', 'low', 'normal', 'high', 'critical']) seen[priority] = await pay.call(() => 'made', { priority }).catch((error) => error.code);
  assert.deepEqual(seen, { background: 'REFUSED', low: 'REFUSED', normal: 'made', high: 'made', critical: 'made' });
  await assert.rejects(pay.call(() => 7, { priority: 'urgent' }), /priority/);
  leaving.abort();
  await Promise.allSettled(held);
});

onBoth('chaos strikes the subjects that it names', async (url) => {
  const client = await connect(url);
  const chaos = { kind: 'error', percent: 100, until: '2199-01-01T00:00:00Z', subjects: ['ann'] };
  for (const [version, others] of [[1n, {}], [2n, { rateLimit: { limit: 1_000, period: '1s' } }], [3n, { breaker: {} }]]) {
    await client.policies.set('pay', { chaos, ...others });
    const pay = await client.policy('pay');
    await until('the change is heard', () => pay.version === version);
    await assert.rejects(pay.call(() => 7, { key: 'ann' }), { code: 'REFUSED', message: /chaos/ });
    assert.deepEqual([await pay.call(() => 7, { key: 'bob' }), await pay.call(() => 8)], [7, 8]);
  }
});

onBoth('a followed policy changes with what is stored', async (url) => {
  const [operator, service] = [await connect(url), await connect(url)];
  await assert.rejects(service.policy('pay', { on: handleAll }), /no stored policy/);
  await operator.policies.set('pay', attempts(2));
  await assert.rejects(service.policy('pay'), /on/);
  const pay = await service.policy('pay', { on: handleAll });
  const attemptsNow = async () => {
    let made = 0;
    await assert.rejects(pay.call(() => { made += 1; throw new Error('down'); }));
    return made;
  };
  assert.deepEqual([pay.name, pay.version, await attemptsNow()], ['pay', 1n, 2]);
  await operator.policies.set('pay', attempts(5));
  await until('the change is heard', () => pay.version === 2n);
  assert.deepEqual([await attemptsNow(), pay.order, pay.problem], [5, ['retry'], undefined]);
  await operator.policies.set('pay', { timeout: { total: '20ms' } });
  await until('the change is heard', () => pay.version === 3n);
  await assert.rejects(pay.call(() => sleep(BOUND, undefined, { ref: false })), { code: 'TIMEOUT' });
  await operator.policies.delete('pay');
  await until('the deletion is heard', () => pay.problem !== undefined);
  assert.equal(await pay.call(() => 7), 7);
  assert.equal(service.health().policies['policy:pay'], 'degraded');
});

onBoth('a service starts before its policy is stored', async (url) => {
  const client = await connect(url);
  const pay = await client.policyOr('pay', { timeout: { total: 1000 } });
  assert.deepEqual([pay.version, pay.order], [undefined, ['total']]);
  await client.policies.set('pay', { timeout: { attempt: '1s' } });
  await until('it is stored', () => pay.version === 1n);
  assert.deepEqual(pay.order, ['attempt']);
});

test('callers of one policy share its breaker', async () => {
  const { url } = await startServer();
  const [one, other] = [await connect(url), await connect(url)];
  await one.policies.set('pay', { breaker: { consecutiveFailures: 2 } });
  const [here, there] = [await one.policy('pay'), await other.policy('pay')];
  for (let call = 0; call < 2; call += 1) await assert.rejects(here.call(() => { throw new Error('down'); }), /down/);
  await assert.rejects(there.call(() => 7), { code: 'CIRCUIT_OPEN' });
});

onBoth('changes are watched until the client is closed', async (url) => {
  const [operator, watcher] = [await connect(url), await connect(url)];
  const changes = await watcher.policies.watch();
  await operator.policies.set('pay', ONE);
  assert.deepEqual(await changes.next(), { done: false, value: { name: 'pay', version: 1n, action: 'created' } });
  await operator.policies.set('pay', attempts(2));
  await operator.policies.delete('pay');
  const reported = [];
  const watching = (async () => { for await (const { version, action } of changes) reported.push([version, action]); })();
  await until('both are notified of', () => reported.length === 2);
  assert.deepEqual(reported, [[2n, 'changed'], [3n, 'deleted']]);
  await watcher.shutdown();
  await watching;
});

onBoth('none of the changes after a watch is missed', async (url) => {
  const operator = await connect(url);
  for (let number = 0; number < 5; number += 1) {
    const watcher = await connect(url);
    const changes = await watcher.policies.watch();
    for (const most of [2, 3, 4]) await operator.policies.set(`p${number}`, attempts(most));
    await operator.policies.delete(`p${number}`);
    const reported = [];
    for (let change = 0; change < 4; change += 1) reported.push((await changes.next()).value.version);
    assert.deepEqual(reported, [1n, 2n, 3n, 4n]);
    await watcher.shutdown();
  }
});

onBoth('several wait for a change, and all end when it is closed', async (url) => {
  const [operator, watcher] = [await connect(url), await connect(url)];
  const changes = await watcher.policies.watch();
  const waiting = [changes.next(), changes.next(), changes.next()];
  await operator.policies.set('one', ONE);
  await operator.policies.set('other', ONE);
  await sleep(200);
  changes.close();
  const ended = await Promise.all(waiting);
  assert.deepEqual(ended.flatMap(({ value }) => value?.name ?? []).sort(), ['one', 'other']);
  assert.equal(ended.filter(({ done }) => done).length, 1);
});

test('a user who may not watch learns what is missing', async () => {
  const server = await startServer();
  await server.say('ACL', 'SETUSER', 'deaf', 'on', '>secret', '~*', 'resetchannels', '+@all');
  const client = await connect(`redis://deaf:secret@127.0.0.1:${server.port}`);
  await assert.rejects(client.policies.watch(), { code: 'PERMISSION_DENIED', message: /&resil:events/ });
});

test('calls that a shutdown cuts off give their places back', async () => {
  const server = await startServer();
  const client = await connect(server.url);
  await client.policies.set('pay', { timeout: { attempt: '5m' }, sharedBulkhead: { maxConcurrentCalls: 20 } });
  const pay = await client.policy('pay');
  let inside = 0;
  const calls = Array.from({ length: 20 }, () => pay.call(() => { inside += 1; return new Promise(() => {}); }).catch((error) => error.code));
  await until('all are inside', () => inside === 20);
  assert.equal((await client.shutdown(20)).cutOff, 20);
  assert.deepEqual(new Set(await Promise.all(calls)), new Set(['SHUTTING_DOWN']));
  const state = await server.say('RES.GUARD', 'STATE', 'resil:policy:{pay}');
  assert.match(JSON.stringify(state), /"active"[,:]0/);
});

test('calls wait for a place in the guard', async () => {
  const { url } = await startServer();
  const client = await connect(url);
  await client.policies.set('pay', { timeout: { attempt: '5s' }, sharedBulkhead: { maxConcurrentCalls: 2, maxWait: '20s', maxQueue: 50 } });
  const pay = await client.policy('pay');
  let [inside, most] = [0, 0];
  const begun = Date.now();
  await Promise.all(Array.from({ length: 12 }, () => pay.call(async () => {
    inside += 1;
    most = Math.max(most, inside);
    await sleep(5);
    inside -= 1;
  })));
  assert.ok(most <= 2, `${most} at once`);
  assert.ok(Date.now() - begun < 4_000, '12 calls of 5 ms, two at once');
});

test('an attempt outliving its ticket is logged once per version', async () => {
  const clock = Clock.driven();
  const client = await connect('memory://', { clock });
  const document = (lease) => ({ sharedBulkhead: { maxConcurrentCalls: 1, lease } });
  await client.policies.set('late', document('1s'));
  const late = await client.policy('late');
  const [warned, reported, published] = [[], [], []];
  const warn = (warning) => warned.push([warning.code, /policy late took 60000 ms/.test(warning.message)]);
  const publish = (said) => published.push(said);
  process.on('warning', warn);
  subscribe('resil:onOutlived', publish);
  const hooks = telemetry.hooks({ only: 'late', onOutlived: (said) => reported.push(said) });
  const outlive = () => late.call(async () => { clock.advance('1m'); return 7; });
  for (let call = 0; call < 3; call += 1) assert.equal(await outlive(), 7, 'its value counts all the same');
  await client.policies.set('late', document('2s'));
  await until('the change is heard', () => late.version === 2n);
  await outlive();
  await until('both are notified of', () => [warned, reported, published].every((heard) => heard.length >= 2));
  assert.deepEqual(warned, [['RESIL_OUTLIVED', true], ['RESIL_OUTLIVED', true]]);
  for (const heard of [reported, published]) assert.deepEqual(heard, [{ name: 'late', tookMs: 60_000 }, { name: 'late', tookMs: 60_000 }]);
  hooks.close();
  unsubscribe('resil:onOutlived', publish);
  process.off('warning', warn);
  await client.shutdown();
});

onBoth('a watch that is left is over', async (url) => {
  const client = await connect(url);
  const changes = await client.policies.watch();
  const waiting = changes.next();
  await sleep(20);
  changes.close();
  assert.deepEqual(await waiting, { done: true, value: undefined });
  for await (const change of changes) assert.fail(String(change));
});

test('an invalid file leaves the last good one', async () => {
  const client = await connect('memory://');
  const folder = mkdtempSync(join(tmpdir(), 'resil-watched-'));
  const path = join(folder, 'policies.yaml');
  writeFileSync(path, 'policies: { pay: { timeout: { total: 1s } } }');
  const watched = client.policies.open(path);
  const pay = watched.policy('pay');
  assert.deepEqual([watched.names, pay.order, watched.problem], [['pay'], ['total'], undefined]);
  writeFileSync(path, 'policies: { pay: { timeout: { total: 0 } } }');
  watched.look();
  assert.match(watched.problem, /policies.pay.timeout.total/);
  assert.deepEqual([pay.order, pay.problem], [['total'], watched.problem]);
  writeFileSync(path, 'policies: { pay: { timeout: { attempt: 1s, total: 2s } }, orders: { timeout: { total: 3s } } }');
  await until('the file is looked at', () => watched.names.length === 2);
  assert.deepEqual([pay.order, await pay.call(() => 7), watched.problem], [['total', 'attempt'], 7, undefined]);
  rmSync(folder, { recursive: true });
  watched.look();
  assert.equal(await pay.call(() => 7), 7);
  assert.notEqual(watched.problem, undefined);
  assert.throws(() => watched.policy('nothing'), /there is no policy/);
});

test('an adaptive breaker knows what is usual', async () => {
  for (const adaptive of [true, false]) {
    const client = await connect('memory://');
    const breaker = { windowCalls: 50, failureRate: 55, consecutiveFailures: 0, minCalls: 20, mode: 'exact', adaptive };
    const policy = client.policies({ version: 1, policies: { bank: { breaker } } }).policy('bank', { on: handleAll });
    // Whether it was made.
    const call = (fails) => policy.call(async () => { if (fails) throw new Error('down'); }).then(() => true, (error) => error.code !== 'CIRCUIT_OPEN');
    const refused = async (calls, fails) => {
      let count = 0;
      for (let number = 0; number < calls; number += 1) count += (await call(fails(number))) ? 0 : 1;
      return count;
    };
    assert.equal(await refused(400, (number) => number % 2 === 1), 0);
    assert.equal(await refused(50, (number) => number % 5 >= 2) === 0, adaptive, 'six of ten are above the rate, and nothing unusual');
    assert.ok(await refused(60, () => true) > 0, 'an outage trips it');
    await client.shutdown();
  }
});
