/**
 * What a policy in this process adds to a call: an async function that returns at once, called and awaited one after the
 * other. Ours on `memory://` where it needs a place. Measured is the CPU time of the whole process, its other threads and what
 * the collector of garbage does included: on a machine with other guests the clock on the wall tells less.
 */
import * as cockatiel from 'cockatiel';
import CircuitBreaker from 'opossum';
import * as resil from 'resil';
import { bar, inTurns, median, ratio, table } from './turns.mjs';

const noop = async () => 1;
/** Policies that need no server, and what one of them may add to a call. */
const LOCAL = ['retry', 'timeout', 'bulkhead', 'fallback'];
const ADDED_NS_MAX = 1_500;

async function nanosPerCall(call, calls) {
  const before = process.cpuUsage();
  for (let turn = 0; turn < calls; turn += 1) await call();
  const { user, system } = process.cpuUsage(before);
  return ((user + system) * 1_000) / calls;
}

async function contests() {
  const client = await resil.connect('memory://');
  const { handleAll, ConsecutiveBreaker, TimeoutStrategy } = cockatiel;
  const breaker = client.breaker('bench');
  const retry = resil.retry({ on: resil.handleAll });
  const timeout = resil.timeout(10_000);
  const bulkhead = resil.bulkhead({ maxConcurrentCalls: 10 });
  const fallback = resil.fallback(0);
  const chain = resil.wrap(resil.retry({ on: resil.handleAll }), client.breaker('chain'), resil.timeout(10_000));
  const theirBreaker = () => cockatiel.circuitBreaker(handleAll, { halfOpenAfter: 10_000, breaker: new ConsecutiveBreaker(5) });
  const theirRetry = () => cockatiel.retry(handleAll, { maxAttempts: 3, backoff: new cockatiel.ExponentialBackoff() });
  const theirTimeout = () => cockatiel.timeout(10_000, TimeoutStrategy.Aggressive);
  const through = (policy) => () => policy.execute(noop);
  const [plainOpossum, timedOpossum] = [new CircuitBreaker(noop, { timeout: false }), new CircuitBreaker(noop, { timeout: 10_000 })];
  const all = {
    'breaker, closed': { resil: () => breaker.call(noop), cockatiel: through(theirBreaker()), 'opossum (timeout off)': () => plainOpossum.fire() },
    'breaker, wrapped function': { resil: breaker.wrap(noop), cockatiel: through(theirBreaker()), 'opossum (timeout off)': () => plainOpossum.fire() },
    retry: { resil: () => retry.call(noop), cockatiel: through(theirRetry()) },
    bulkhead: { resil: () => bulkhead.call(noop), cockatiel: through(cockatiel.bulkhead(10)) },
    fallback: { resil: () => fallback.call(noop), cockatiel: through(cockatiel.fallback(handleAll, 0)) },
    timeout: { resil: () => timeout.call(noop), cockatiel: through(theirTimeout()) },
    'breaker and timeout': {
      resil: ((both) => () => both.call(noop))(resil.wrap(client.breaker('both'), resil.timeout(10_000))),
      cockatiel: through(cockatiel.wrap(theirBreaker(), theirTimeout())), opossum: () => timedOpossum.fire(),
    },
    'retry, breaker and timeout': { resil: () => chain.call(noop), cockatiel: through(cockatiel.wrap(theirRetry(), theirBreaker(), theirTimeout())) },
  };
  const close = async () => {
    plainOpossum.shutdown();
    timedOpossum.shutdown();
    await client.shutdown(0);
  };
  return { all, close };
}

export async function policies({ rounds, calls }) {
  const { all, close } = await contests();
  const found = { bare: [] };
  const added = {};
  // One contest after the other: what some ways leave behind (timers, garbage) would be collected in the turns of others.
  for (const [contest, rivals] of Object.entries(all)) {
    const ways = { bare: () => nanosPerCall(noop, calls) };
    for (const [name, call] of Object.entries(rivals)) {
      await nanosPerCall(call, calls); // warm
      ways[`${contest}: ${name}`] = () => nanosPerCall(call, calls);
    }
    const { bare, ...ours } = await inTurns(ways, rounds);
    found.bare.push(...bare);
    for (const [way, nanos] of Object.entries(ours)) {
      found[way] = nanos;
      added[way] = median(nanos.map((ns, round) => ns - bare[round]));
    }
  }
  await close();
  const bare = median(found.bare);
  const rows = [['a bare await', bare.toFixed(0), '', '']];
  const bars = [];
  for (const [contest, rivals] of Object.entries(all)) {
    const us = `${contest}: resil`;
    for (const name of Object.keys(rivals)) {
      const way = `${contest}: ${name}`;
      rows.push([way, median(found[way]).toFixed(0), added[way].toFixed(0), way === us ? '' : `${ratio(found, us, way).toFixed(2)}x`]);
    }
    if (LOCAL.includes(contest)) bars.push(bar(`${contest}: at most ${ADDED_NS_MAX} ns more than the call alone`, `${added[us].toFixed(0)} ns`, added[us] <= ADDED_NS_MAX));
  }
  return { title: 'Overhead of a policy', table: table(['', 'ns of CPU per call', 'added', 'ours beside it'], rows), bars };
}
