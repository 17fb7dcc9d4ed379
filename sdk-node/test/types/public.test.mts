/**
 * Types as promises: this file is not run, only compiled. What is expected to be refused says so.
 */
import {
  BulkheadFullError, CacheEntry, CircuitOpenError, InvalidPolicyError, ResilError, RetryExhaustedError,
  budget, bulkhead, connect, dispatcher, fallback, handleAll, hedge, perSecond, retry, timeout, wrap,
  type Code, type Context, type Guard, type ItemResult, type LockGuard, type Loaded, type Outcome, type Transition, type Verdict,
} from 'resil';
import { Clock, Script, raw, rawAt, type Reply } from 'resil/testing';

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends (<T>() => T extends B ? 1 : 2) ? true : false;
/** Compiles only if the two types are the same. */
function same<A, B>(_proof: Same<A, B>): void {}

interface User { id: string; name: string }
declare function fetchUser(id: string, options?: { fresh: boolean }): Promise<User>;
declare function addSync(a: number, b: number): number;
class Lost extends Error {}

// A call keeps the type of its function's result, and unwraps promises.
const often = retry({ on: handleAll });
const a = await often.call(() => fetchUser('1'));
same<typeof a, User>(true);
const b = await often.call(() => 1);
same<typeof b, number>(true);
await often.call((context) => { same<typeof context, Context>(true); same<typeof context.signal, AbortSignal>(true); });

// Wrapped functions keep arguments and result.
const user = often.wrap(fetchUser);
same<Parameters<typeof user>, [id: string, options?: { fresh: boolean } | undefined]>(true);
same<ReturnType<typeof user>, Promise<User>>(true);
const add = wrap(often, timeout(250), addSync);
same<ReturnType<typeof add>, Promise<number>>(true);
same<Parameters<typeof add>, [a: number, b: number]>(true);
// @ts-expect-error a number is no id
user(1);
// @ts-expect-error one is missing
add(1);

// `this` is kept.
class Repository {
  constructor(readonly table: string) {}
  find = wrap(timeout(100), async function (this: Repository, id: number) { return `${this.table}:${id}`; });
}
same<Awaited<ReturnType<Repository['find']>>, string>(true);

// A fallback adds what it replies, also through wrap.
const maybe = wrap(fallback(null), often);
const c = await maybe.call(() => fetchUser('1'));
same<typeof c, User | null>(true);
const d = await wrap(fallback((error) => { same<typeof error, unknown>(true); return 0; }), often).call(() => fetchUser('1'));
same<typeof d, User | number>(true);
const plain: Guard = wrap(often, bulkhead({ maxConcurrentCalls: 3 }));
const e = await plain.call(async () => 'x');
same<typeof e, string>(true);

// Which errors: classes, lists of them, functions with a meaning.
retry({ on: Lost });
retry({ on: [Lost, TypeError], maxAttempts: 5, initialBackoff: '50ms', jitter: '20%', budget: null });
retry({ on: (error) => (error instanceof Lost ? 250 : 'ignore') });
hedge({ on: handleAll, hedgingDelay: 20 });
// @ts-expect-error it has to be said which errors may go away
retry({ maxAttempts: 3 });
// @ts-expect-error there is no such jitter
retry({ on: handleAll, jitter: 'much' });
// @ts-expect-error a date is no span
timeout(new Date());

const client = await connect('memory://', { name: 'checkout-7', commandTimeout: '500ms', clock: Clock.driven() });

const limiter = client.limiter('api', perSecond(10, { burst: 20 }));
const verdict = await limiter.check('ann', 2);
same<typeof verdict, Verdict>(true);
same<Verdict['retryAfterMs'], number | null>(true);
// @ts-expect-error a limit has a period
client.limiter('api', { limit: 3 });

const breaker = client.breaker('bank', { consecutiveFailures: 5, ignore: Lost, version: 2n });
breaker.on('transition', (transition) => {
  same<typeof transition, Transition>(true);
  same<typeof transition.generation, bigint>(true);
});

{
  await using held = await client.lock('stock', { lease: '10s' }).untilAcquired();
  same<typeof held, LockGuard>(true);
  same<typeof held.fence, bigint | null>(true);
  held.on('lost', (error) => same<typeof error.code, 'LOCK_LOST'>(true));
  await using place = await client.sharedBulkhead('reports', 3).enter();
  same<typeof place.signal, AbortSignal>(true);
  using spot = bulkhead({ maxConcurrentCalls: 1 }).tryAcquire();
  spot.release();
}
// @ts-expect-error two processes would each think they are alone
client.lock('stock', { whenAway: 'local' });

const receipt = await client.idempotent('payments').run('k', { amount: 7 }, async ({ fence }) => {
  same<typeof fence, bigint | undefined>(true);
  return 'receipt';
});
same<typeof receipt, Outcome<string>>(true);

client.idempotent('payments', { serializer: { serialize: (user: User) => JSON.stringify(user), deserialize: (bytes) => bytes.length } });
// @ts-expect-error there is no such serializer
client.idempotent('payments', { serializer: 'yaml' });
await client.waitReady('5s');
const { reason, since } = client.health();
same<typeof reason, string | undefined>(true);
same<typeof since, Date | undefined>(true);
client.policy('payments', { on: handleAll, retry: { reraise: true, jitter: { plusMinus: 20 } } });

const users = client.cached<User>('user', { ttl: 60_000 });
const whole = await users.lookup('1', (key) => fetchUser(key));
same<typeof whole, Loaded<User>>(true);
const f = await users.get('1', (key) => fetchUser(key));
same<typeof f, User | undefined>(true);
// @ts-expect-error a number is no user
await users.get('1', () => 1);
same<Awaited<ReturnType<typeof users.getMany>>, (User | undefined)[]>(true);
const entry = await users.get('1', async (key) => new CacheEntry(await fetchUser(key), { ttl: '5s', tags: ['team:7'], keep: false }), { tags: new Set(['x']), softTimeout: 5 });
same<typeof entry, User | undefined>(true);
const byId = users.by((id: number) => `${id}`, async (id: number) => fetchUser(String(id)));
same<Awaited<ReturnType<typeof byId>>, User | undefined>(true);
const wasKnown: boolean = await byId.invalidate(7);
// @ts-expect-error as the function itself takes it
await byId.invalidate('7');
// @ts-expect-error there is nothing in it
new CacheEntry(undefined);
const invalidated: number = await users.invalidateOn((async function* () { yield '1'; })());
void [wasKnown, invalidated];
const bytes = client.cached('blob', { serializer: 'bytes' });
same<Awaited<ReturnType<typeof bytes.get>>, Uint8Array | undefined>(true);

const results = await dispatcher(4).run([1, 2], async (item, { signal }) => { same<typeof signal, AbortSignal>(true); return String(item); });
same<typeof results, ItemResult<string>[]>(true);
const [first] = results;
if (first?.status === 'fulfilled') same<typeof first.value, string>(true);

const policy = client.policy('payments', { on: handleAll, timeout: { total: '1s' }, retry: { maxAttempts: 2 }, rateLimit: perSecond(5) });
same<Awaited<ReturnType<typeof policy.callOnce<number>>>, Outcome<number>>(true);
// @ts-expect-error there is no such stage
client.policy('payments', { timeouts: {} });
client.policies({ version: 1, policies: { a: { shed: 3 } } }).policy('a', { on: handleAll });
client.policy('judged', { onResult: (result) => result === 503, retry: { budget: budget({ percent: 10 }) } });
const followedOne = await client.policy('followed', { onResult: () => false });
void followedOne;

try {
  await policy.call(() => 1, { key: 'ann', cost: 2, signal: new AbortController().signal });
} catch (error) {
  if (error instanceof CircuitOpenError) same<typeof error.code, 'CIRCUIT_OPEN'>(true);
  else if (error instanceof RetryExhaustedError) { same<typeof error.attempts, number>(true); same<typeof error.cause, unknown>(true); }
  else if (error instanceof InvalidPolicyError) same<typeof error.field, string>(true);
  else if (error instanceof BulkheadFullError || error instanceof ResilError) {
    const code: Code = error.code;
    const wait: number | undefined = error.retryAfterMs;
    void [code, wait];
  }
}

const reply = await raw(client, ['RES.GCRA', 'k', 10, '1s']);
same<typeof reply, Reply>(true);
same<ReturnType<typeof rawAt>, Reply>(true);
// @ts-expect-error clients are made by connect
new client.constructor();

// A wrapped function that gets its context keeps its other arguments.
const reported = often.wrap(async (id: string, context: Context) => `${id}${context.attempt}`, { context: true });
same<typeof reported, (this: unknown, id: string) => Promise<string>>(true);
// @ts-expect-error the context is not the caller's to give
await reported('1', {});
// @ts-expect-error it is notified, or it is not
often.wrap(addSync, { context: 'yes' });

// A script in place of a server.
const script: Script = new Script({ clock: Clock.driven() }).reply([1, 10n, null, { a: 'b' }]).away();
same<typeof script.asked, string[][]>(true);
script.connect().limiter('l', perSecond(1));
// @ts-expect-error no server would send that
script.reply([true]);

// Results that are failures, budgets that are shared, trips by hand.
retry({ onResult: (response) => response.status === 503, budget: budget({ percent: 10 }) });
void breaker.force('open-then-probe', { duration: '1m' });
