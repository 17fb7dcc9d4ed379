/** Garbage for every argument of the public surface: a TypeError or a RangeError that names it, never the end of the process. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as resil from 'resil';
import * as testing from 'resil/testing';
import { settled } from './waiting.mjs';

const { connect, handleAll, perSecond, retry } = resil;
const client = await connect('memory://');
const limiter = client.limiter('l', perSecond(5));
const breaker = client.breaker('b');
const lock = client.lock('k', { wait: 0 });
const places = client.sharedBulkhead('s', 2);
const idempotent = client.idempotent('i');
const cached = client.cached('c');
const versioned = client.versionedCached('v');
const policy = client.policy('p', { shed: 3 });
await client.policies.set('g', {});
const file = client.policies({ version: 1, policies: { a: { shed: 3 } } });
const room = resil.bulkhead({ maxConcurrentCalls: 100_000 });
const held = await lock.acquire();
const letters = client.deadLetters('d', { actor: 'ada', wait: 100 });
await letters.configure({ jitter: 'none', transient: { base: 100, cap: 100, retries: 1000 } });
const dead = await letters.fail('dead', 'no luck', { kind: 'order', count: 'final' });
const cause = { groups: [dead.group], category: 'contract', cause: 'c', fix: 'f' };
const caseNumber = await letters.diagnose(cause);
/** Taken letters, each for one call. */
const others = client.deadLetters('o', { actor: 'ada' });
await others.configure({ jitter: 'none', transient: { base: 100, cap: 100 } });
for (let id = 0; id < 300; id += 1) await others.fail(`o/${id}`, 'e');
const taken = [];
while (taken.length < 250) taken.push(...(await others.take({ count: 1000, wait: 5000 })));
const clock = testing.Clock.driven();

class Odd { constructor() { this.limit = 1; } }
const cyclic = {};
cyclic.self = cyclic;
const GARBAGE = [
  undefined, null, true, -1, 1.5, NaN, Infinity, -0, 2 ** 53, '', 'nonsense', '\ud800', '\0', 'x'.repeat(100_000), 10n, -1n, 2n ** 70n, Symbol('s'),
  () => { throw new Error('thrown by garbage'); }, class {}, [], [undefined], {}, { a: 1 }, { limit: 'many' }, { signal: 1 }, new Odd(), cyclic, new Date(NaN),
  new Proxy({}, { get() { throw new Error('thrown by garbage'); }, ownKeys() { throw new Error('thrown by garbage'); } }), Object.create(null), new Uint8Array(3), new Map([[1, 2]]),
];

/** What may come of garbage: refused by the family, refused by the garbage itself, or taken because it is not garbage there. */
function isFine(error) {
  if (error?.message?.includes('thrown by garbage')) return true;
  if (error instanceof TypeError || error instanceof RangeError) return error.message.length > 0;
  // A name that is none of a policy, a path that is no file, a key that is not there: these are replies.
  return error instanceof resil.ResilError ? error.code !== 'INTERNAL' && error.code !== 'CRASHED' : error?.code === 'ENOENT' || error?.code === 'ENAMETOOLONG' || error?.code === 'ERR_INVALID_ARG_VALUE';
}

const fn = () => 1;
/** Every function of the surface, with arguments that are right. */
const SURFACE = {
  connect: [connect, 'memory://', {}],
  retry: [resil.retry, { on: handleAll }],
  timeout: [resil.timeout, 10],
  hedge: [resil.hedge, { on: handleAll }],
  bulkhead: [resil.bulkhead, { maxConcurrentCalls: 1 }],
  fallback: [resil.fallback, 1, {}],
  dispatcher: [resil.dispatcher, 1],
  wrap: [resil.wrap, room, room],
  perSecond: [resil.perSecond, 1, {}],
  perDay: [resil.perDay, 1, {}],
  problem: [resil.problem, new Error('x')],
  rateLimitHeaders: [resil.rateLimitHeaders, 'p', await limiter.peek('x'), {}],
  idempotencyKey: [resil.idempotencyKey, 'k', {}],
  requestFingerprint: [resil.requestFingerprint, 'GET', '/', ''],
  'client.limiter': [client.limiter.bind(client), 'l', perSecond(1)],
  'client.breaker': [client.breaker.bind(client), 'b', {}],
  'client.lock': [client.lock.bind(client), 'l', {}],
  'client.sharedBulkhead': [client.sharedBulkhead.bind(client), 's', 1],
  'client.idempotent': [client.idempotent.bind(client), 'i', {}],
  'client.cached': [client.cached.bind(client), 'c', {}],
  'client.versionedCached': [client.versionedCached.bind(client), 'v', {}],
  'client.policy': [client.policy.bind(client), 'p', {}],
  'client.policies': [client.policies.bind(client), 'version: 1\npolicies: {}'],
  'client.checkAll': [client.checkAll.bind(client), [[limiter, 'a']], 1, {}],
  'limiter.check': [limiter.check.bind(limiter), 'a', 1, {}],
  'limiter.acquire': [limiter.acquire.bind(limiter), 'a', 1, {}],
  'limiter.upTo': [limiter.upTo.bind(limiter), 'a', 1, {}],
  'limiter.peek': [limiter.peek.bind(limiter), 'a', {}],
  'limiter.refund': [limiter.refund.bind(limiter), 'a', 1, {}],
  'limiter.call': [limiter.call.bind(limiter), fn, {}],
  'breaker.call': [breaker.call.bind(breaker), fn, {}],
  'breaker.wrap': [breaker.wrap.bind(breaker), fn, {}],
  'breaker.admit': [breaker.admit.bind(breaker), {}],
  'breaker.force': [breaker.force.bind(breaker), 'auto', {}],
  'breaker.configure': [breaker.configure.bind(breaker), { minCalls: 3 }],
  'lock.call': [lock.call.bind(lock), fn, {}],
  'lock.acquire': [lock.acquire.bind(lock), { wait: 0 }],
  'lock.tryAcquire': [lock.tryAcquire.bind(lock), {}],
  'lock.breakLock': [client.lock('none').breakLock.bind(client.lock('none')), 'a', 'r'],
  'lock.check': [lock.check.bind(lock), 'owner', 1],
  'held.extend': [held.extend.bind(held), 10_000],
  'places.call': [places.call.bind(places), fn, {}],
  'places.enter': [async (options) => (await places.enter(options)).leave(), {}],
  'places.tryEnter': [async (options) => (await places.tryEnter(options)).leave(), {}],
  'idempotent.run': [(key, request, work, options) => idempotent.run(key, request, work, options), 'k', 'x', fn, {}],
  'idempotent.once': [idempotent.once.bind(idempotent), 'k', 1_000, 'token'],
  'idempotent.get': [idempotent.get.bind(idempotent), 'k'],
  'cached.get': [cached.get.bind(cached), 'k', fn, {}],
  'cached.lookup': [cached.lookup.bind(cached), 'k', fn, {}],
  'cached.invalidate': [cached.invalidate.bind(cached), 'k'],
  'cached.invalidateSoft': [cached.invalidateSoft.bind(cached), 'k'],
  'cached.invalidateEventually': [cached.invalidateEventually.bind(cached), 'k', {}],
  'cached.invalidateMany': [cached.invalidateMany.bind(cached), ['k']],
  'cached.invalidateTag': [cached.invalidateTag.bind(cached), 't'],
  'cached.invalidateOn': [cached.invalidateOn.bind(cached), ['k'], {}],
  'cached.getMany': [cached.getMany.bind(cached), ['k'], fn, {}],
  'cached.refresh': [cached.refresh.bind(cached), 'k', fn, {}],
  'cached.set': [cached.set.bind(cached), 'k', 1, {}],
  'cached.by': [(key, loader, options) => cached.by(key, loader, options)(), 'k', fn, {}],
  CacheEntry: [(value, options) => new resil.CacheEntry(value, options), 1, {}],
  'versioned.get': [versioned.get.bind(versioned), 'k', () => ({ version: 1, value: 1 }), {}],
  'versioned.invalidate': [versioned.invalidate.bind(versioned), 'k'],
  'policy.call': [policy.call.bind(policy), fn, {}],
  'policy.callOnce': [policy.callOnce.bind(policy), idempotent, 'once', 'x', fn, {}],
  'policies.policy': [file.policy.bind(file), 'a', {}],
  'room.call': [room.call.bind(room), fn, {}],
  'room.acquire': [async (options) => (await room.acquire(options)).release(), {}],
  'room.partition': [room.partition.bind(room), 'none'],
  'dispatcher.run': [(items, work, options) => resil.dispatcher(2).run(items, work, options), [1], fn, {}],
  'client.deadLetters': [client.deadLetters.bind(client), 'd', {}],
  'letters.by': [letters.by.bind(letters), 'ada'],
  'letters.fail': [letters.fail.bind(letters), 'f', 'e', {}],
  'letters.park': [letters.park.bind(letters), 'p', { aggregate: 'a', payload: 'x' }],
  'letters.take': [letters.take.bind(letters), { count: 1, wait: 1 }],
  'letters.run': [(handler, judge) => letters.run(handler, { judge, signal: AbortSignal.timeout(5) }), fn, fn],
  'letters.get': [letters.get.bind(letters), 'f'],
  'letters.standing': [letters.standing.bind(letters), 'f'],
  'letters.list': [letters.list.bind(letters), {}],
  'letters.listAll': [async (filter) => { for await (const letter of letters.listAll(filter)) void letter; }, {}],
  'letters.configure': [letters.configure.bind(letters), { crashes: 3 }],
  'letters.case': [letters.case.bind(letters), caseNumber],
  'letters.diagnose': [letters.diagnose.bind(letters), cause],
  'letters.redrive': [letters.redrive.bind(letters), caseNumber, {}],
  'letters.dryRun': [letters.dryRun.bind(letters), caseNumber, {}],
  'letters.stop': [letters.stop.bind(letters), caseNumber],
  'letters.close': [letters.close.bind(letters), caseNumber],
  'letters.discard': [letters.discard.bind(letters), caseNumber],
  'letters.hold': [letters.hold.bind(letters), 'f', 'r'],
  'letters.holdAggregate': [letters.holdAggregate.bind(letters), 'a', 'r'],
  'letters.release': [letters.release.bind(letters), 'f', 'r'],
  'letters.releaseAggregate': [letters.releaseAggregate.bind(letters), 'a', 'r'],
  'letters.purge': [letters.purge.bind(letters), 90 * 86_400_000, {}],
  'letters.seen': [letters.seen.bind(letters), 1],
  'letter.fail': [(error, options) => taken.pop().fail(error, options), 'e', {}],
  'letter.giveBack': [(delay) => taken.pop().giveBack(delay), 1],
  'clock.advance': [clock.advance.bind(clock), 1],
  'script.reply': [(reply) => new testing.Script().reply(reply), 1],
  'script.fail': [(error) => new testing.Script().fail(error), new resil.TimeoutError('x')],
  Script: [(options) => new testing.Script(options), {}],
  'testing.raw': [testing.raw, client, ['RES.GCRA', 'k', '10', '1s']],
  'testing.rawAt': [testing.rawAt, client, ['RES.GCRA', 'k', '10', '1s'], 1n],
};

for (const [name, [call, ...right]] of Object.entries(SURFACE)) {
  test(`${name} refuses garbage by its name`, async () => {
    for (const at of right.keys()) {
      for (const [index, garbage] of GARBAGE.entries()) {
        const given = right.with?.(at, garbage) ?? right.map((value, place) => (place === at ? garbage : value));
        try {
          await settled(call(...given));
        } catch (error) {
          assert.ok(isFine(error), `garbage ${index} as argument ${at}: ${error?.stack ?? String(error)}`);
        }
      }
    }
  });
}

let values = 0;
/** Settings of which each field is given garbage. */
const FIELDS = {
  limiter: [(options) => client.limiter('g', { limit: 1, period: 1000, ...options }), ['limit', 'period', 'burst', 'kind', 'tiers', 'whenAway', 'unknown']],
  breaker: [(options) => client.breaker('g', options), ['windowCalls', 'windowTime', 'failureRate', 'slowCallDuration', 'slowCallRate', 'consecutiveFailures', 'minCalls', 'openFor', 'openFactor', 'openMax', 'probes', 'successes', 'probeLease', 'quorum', 'ramp', 'idle', 'version', 'mode', 'whenAway', 'flushInterval', 'batch', 'trust', 'ignore', 'unknown']],
  lock: [(options) => client.lock('g', options), ['lease', 'wait', 'shared', 'meta', 'bound', 'watchdog', 'replicas', 'whenAway', 'keepRunningWhenLost', 'unknown']],
  sharedBulkhead: [(options) => client.sharedBulkhead('g', { maxConcurrentCalls: 1, ...options }), ['maxConcurrentCalls', 'maxQueue', 'maxWait', 'priority', 'lease', 'bound', 'whenAway', 'unknown']],
  idempotent: [(options) => client.idempotent('g', options), ['lease', 'keep', 'wait', 'onLapse', 'onLost', 'abortOnCancel', 'replicas', 'whenAway', 'serializer', 'remember', 'unknown']],
  cached: [(options) => client.cached('g', options), ['ttl', 'negativeTtl', 'stale', 'errorTtl', 'retry', 'onError', 'loadTimeout', 'lease', 'localTtl', 'localSize', 'whenAway', 'serializer', 'unknown']],
  cachedCall: [(options) => cached.get('g', fn, options), ['ttl', 'tags', 'softTimeout', 'signal', 'unknown']],
  cachedValue: [(options) => cached.get(`value-${(values += 1)}`, () => new resil.CacheEntry(1, options)), ['ttl', 'tags', 'keep', 'unknown']],
  retry: [(options) => retry({ on: handleAll, ...options }), ['on', 'name', 'maxAttempts', 'initialBackoff', 'maxBackoff', 'backoffMultiplier', 'jitter', 'minBackoff', 'retryAfterMax', 'maxElapsed', 'budget', 'reraise', 'clock', 'seed', 'unknown']],
  hedge: [(options) => resil.hedge({ on: handleAll, ...options }), ['on', 'name', 'hedgingDelay', 'percentile', 'warmUp', 'maxHedges', 'budget', 'clock', 'unknown']],
  timeout: [(options) => resil.timeout({ after: 1, ...options }), ['after', 'name', 'clock', 'unknown']],
  bulkhead: [(options) => resil.bulkhead({ maxConcurrentCalls: 1, ...options }), ['name', 'maxConcurrentCalls', 'maxQueue', 'maxWait', 'partitions', 'clock', 'unknown']],
  deadLetters: [(options) => client.deadLetters('g', options), ['lease', 'grace', 'concurrency', 'wait', 'actor', 'replicas', 'unknown']],
  failure: [(options) => letters.fail('g', 'e', options), ['payload', 'headers', 'reference', 'kind', 'source', 'aggregate', 'schema', 'failureClass', 'group', 'after', 'prior', 'count', 'unknown']],
  letterFilter: [(options) => letters.list(options), ['state', 'kind', 'failureClass', 'group', 'aggregate', 'case', 'since', 'until', 'cursor', 'limit', 'unknown']],
  redrive: [(options) => letters.dryRun(caseNumber, options), ['id', 'kind', 'aggregate', 'since', 'until', 'count', 'rate', 'first', 'oneshot', 'unknown']],
  diagnosis: [(options) => letters.diagnose({ ...cause, ...options }), ['groups', 'category', 'cause', 'fix', 'decision', 'auto', 'unknown']],
  ledger: [(options) => letters.configure(options), ['transient', 'business', 'external', 'jitter', 'crashes', 'rateMax', 'afterMax', 'paused', 'pausedFor', 'unknown']],
  dispatcher: [(options) => resil.dispatcher({ workers: 1, ...options }), ['workers', 'onError', 'unknown']],
  policy: [(options) => client.policy('g', options), ['on', 'order', 'timeout', 'shed', 'retry', 'hedge', 'breaker', 'rateLimit', 'bulkhead', 'sharedBulkhead', 'whenAway', 'unknown']],
  call: [(options) => policy.call(fn, options), ['key', 'cost', 'partition', 'attemptTimeout', 'totalTimeout', 'signal', 'unknown']],
  connect: [(options) => connect('memory://', options), ['name', 'commandTimeout', 'instances', 'waitingConnections', 'requireServer', 'clock', 'signal', 'unknown']],
};

/** What is asked for is right, and cannot be had. */
const REPLIES = new Set(['TIMEOUT', 'LEDGER_CONFLICT', 'REDRIVE_REFUSED']);
/** A ledger checks these, and names them as its command does. */
const NOTHING = ['missing options'];
const ALSO = {
  kind: ['TYPE'], groups: ['group'], failureClass: ['CLASS'], reference: ['REF'], count: ['NOCOUNT', 'FINAL', 'COUNT'],
  unknown: NOTHING, transient: NOTHING, business: NOTHING, external: NOTHING, jitter: NOTHING, crashes: NOTHING, paused: NOTHING,
  rateMax: ['RATEMAX', 'RATE', ...NOTHING], afterMax: ['AFTERMAX', ...NOTHING], pausedFor: ['FOR', ...NOTHING],
};

for (const [name, [make, fields]] of Object.entries(FIELDS)) {
  test(`settings of ${name} are refused by field name`, async () => {
    for (const field of fields) {
      let refused = 0;
      for (const [index, garbage] of GARBAGE.entries()) {
        try {
          await settled(make({ [field]: garbage }));
        } catch (error) {
          assert.ok(isFine(error), `garbage ${index} as ${field}: ${error?.stack ?? String(error)}`);
          // A timeout of a millisecond is short, and no garbage.
          if (!error.message.includes('thrown by garbage') && !REPLIES.has(error.code)) {
            refused += 1;
            assert.ok(error instanceof TypeError || error instanceof RangeError, `${field}: ${error.name}`);
            const words = [field, ...(ALSO[field] ?? [])].map((word) => word.toLowerCase());
            const isNamed = words.some((word) => error.message.toLowerCase().includes(word)) || error.field?.includes(field);
            assert.ok(isNamed, `${field} is not named: ${error.message}`);
          }
        }
      }
      assert.ok(refused > 0 || ['name', 'meta', 'key', 'unknown'].includes(field), `no garbage was refused as ${field}`);
    }
  });
}

test('whatever was refused, everything still works', async () => {
  assert.equal(await breaker.call(fn), 1);
  assert.equal(await policy.call(fn), 1);
  assert.equal((await limiter.check('fresh')).isGranted, true);
});
