/**
 * A cache in front of a store that is slow, and sometimes down.
 *
 * - Of all who need a value that is not there, in all processes, one loads it; the others get what it loaded.
 * - A value that is out of date is served while one loads it anew: nobody waits for the store twice.
 * - After a change is committed it is invalidated, and no process returns the old value to a get that begins afterwards.
 * - That there is no such thing is remembered, too. So is, for a moment, that the store is down.
 *
 * `node slow_store.mjs [url]`
 */
import { setTimeout as pause } from 'node:timers/promises';
import { LoadFailedError } from 'resil';
import { connectAs, isProgram, thisRun, url } from './running.mjs';

const SLOW_MS = 300;

// ---- the store: a database that takes its time ---------------------------------------------------------------------------------

class StoreError extends Error {}

class Store {
  rows = new Map();
  isDown = false;
  #loads = 0;

  async load(id) {
    this.#loads += 1;
    await pause(SLOW_MS);
    if (this.isDown) throw new StoreError('too many connections');
    return this.rows.get(id);
  }

  /** How many loads there were since this was last asked. */
  loads() {
    const loads = this.#loads;
    this.#loads = 0;
    return loads;
  }
}

// ---- the service ---------------------------------------------------------------------------------------------------------------

class Catalogue {
  constructor(client, store) {
    this.client = client;
    this.store = store;
    this.cached = client.cached('product', { ttl: '60s', stale: '600s', negativeTtl: '30s', errorTtl: '30s', loadTimeout: '10s' });
  }

  product(id) {
    return this.cached.lookup(id, (wanted) => this.store.load(wanted));
  }

  /** The order matters: what is invalidated before the commit may be loaded again before it, and stays old. */
  async change(id, product) {
    this.store.rows.set(id, product);
    await this.cached.invalidate(id);
  }
}

/** What `many` callers of each process got for `id`, all at once. */
const crowd = (processes, many, id) => Promise.allSettled(processes.flatMap((process) => Array.from({ length: many }, () => process.product(id))));

const values = (got) => got.map((each) => {
  if (each.status === 'rejected') throw each.reason;
  return each.value.value;
});

// ---- the story -----------------------------------------------------------------------------------------------------------------

/** What was seen, for the tests to judge. */
export async function story(where) {
  const store = new Store();
  const processes = [];
  for (const name of ['web-1', 'web-2']) processes.push(new Catalogue(await connectAs(where, 'slow_store', name), store));
  const run = thisRun();
  const [tea, noSuchThing, coffee] = [`tea-${run}`, `none-${run}`, `coffee-${run}`];

  console.log('A thousand callers in two processes want a product that nobody has loaded:');
  store.rows.set(tea, { name: 'tea', cents: 420 });
  const first = values(await crowd(processes, 500, tea));
  const loadsFirst = store.loads();
  console.log(`  ${first.length} results, ${loadsFirst} load`);

  console.log('It is out of date, but better than nothing:');
  await processes[0].cached.invalidateSoft(tea);
  const begun = performance.now();
  const got = await crowd(processes, 50, tea);
  const staleTookMs = performance.now() - begun;
  const stale = got.filter((each) => each.value?.isStale).length;
  console.log(`  ${stale} of ${got.length} were served the old one, within ${Math.round(staleTookMs)} ms`);
  // One of them was asked to load it anew, behind its back.
  while ((await processes[1].product(tea)).isStale) await pause(20);
  const loadsStale = store.loads();
  console.log(`  meanwhile: ${loadsStale} load`);

  console.log('The price changes; web-1 commits, and invalidates:');
  await processes[0].change(tea, { name: 'tea', cents: 450 });
  const afterCommit = values(await crowd(processes, 50, tea));
  console.log(`  ${afterCommit.length} replies, all new: ${afterCommit.every(({ cents }) => cents === 450)}`);
  store.loads();

  console.log('A hundred ask for something that is not there, twice:');
  const nobody = [...await crowd(processes, 50, noSuchThing), ...await crowd(processes, 50, noSuchThing)];
  const unknown = nobody.filter((each) => each.value?.isFound === false).length;
  const loadsUnknown = store.loads();
  console.log(`  ${unknown} times "not found", ${loadsUnknown} load`);

  console.log('The store is down:');
  store.isDown = true;
  await processes[0].cached.invalidateSoft(tea);
  const servedWhileDown = (await processes[1].product(tea)).value;
  console.log(`  what is known is still served: ${JSON.stringify(servedWhileDown)}`);
  const refused = await crowd(processes, 100, coffee);
  // In the process that loaded it is the error itself, in the others its words.
  const isTheStores = ({ reason }) => reason instanceof StoreError || (reason instanceof LoadFailedError && reason.message.includes('too many connections'));
  const failed = refused.filter((each) => each.status === 'rejected' && isTheStores(each)).length;
  // The refresh of what is known failed, too, once.
  await pause(SLOW_MS);
  const loadsWhileDown = store.loads();
  console.log(`  ${failed} callers of another product get the store's error; it was asked ${loadsWhileDown} times`);
  for (const { client } of processes) await client.shutdown(1_000);
  return { first, loadsFirst, stale, staleTookMs, loadsStale, afterCommit, unknown, loadsUnknown, servedWhileDown, failed, loadsWhileDown };
}

if (isProgram(import.meta.url)) await story(url());
