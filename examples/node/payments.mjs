/**
 * A payment service: every order is paid once, whatever happens to the process that pays it.
 *
 * Three things, and each does what the others cannot:
 * - idempotency: of all who ask for the same order one pays, the others get its receipt;
 * - a lock on the account: one change at a time, so that nobody reads a balance that is about to change;
 * - fences: a process may sleep over its lease and not know it. Whatever it writes then carries an old number, and the ledger
 *   refuses it. Leases make accidents rare; fences make them harmless.
 *
 * `node payments.mjs [url]`
 */
import { once } from 'node:events';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
import { connectAs, isProgram, thisRun, url } from './running.mjs';

/** How long a process that fell silent is waited for, in ms. Short, so that the story is; 30 s and 10 s by default. */
const LEASE = 1_000;
const PATIENCE = 30_000;
const ACCOUNT = 'account:ann';

// ---- the ledger: a table outside of Redis, which takes keys and fences --------------------------------------------------------

/** Somebody with a higher fence was here: this writer's lease is over, and it did not know. */
class StaleFence extends Error {}

class Ledger {
  balances = new Map([[ACCOUNT, 100_000]]);
  receipts = new Map();
  /** Fences that were refused, each with the highest that had been seen. */
  refused = [];
  #highestFences = new Map();

  /** In one transaction: both fences are checked, and an order that is paid stays paid as it was. */
  async pay({ order, orderFence, account, accountFence, cents }) {
    for (const [key, carried] of [[order, orderFence], [account, accountFence]]) {
      const seen = this.#highestFences.get(key) ?? 0n;
      if (carried < seen) {
        this.refused.push([carried, seen]);
        throw new StaleFence('an older fence than the highest that was seen');
      }
      this.#highestFences.set(key, carried);
    }
    if (!this.receipts.has(order)) {
      if (this.balances.get(account) < cents) throw new Error('there is not enough');
      this.balances.set(account, this.balances.get(account) - cents);
      this.receipts.set(order, { order, cents, number: this.receipts.size + 1 });
    }
    return this.receipts.get(order);
  }
}

// ---- the service ---------------------------------------------------------------------------------------------------------------

class Service {
  constructor(client, ledger) {
    this.client = client;
    this.ledger = ledger;
    this.orders = client.idempotent('orders', { lease: LEASE, wait: PATIENCE });
    // A process that is swapped out renews nothing. In this story only one thread sleeps, and leases are renewed on another: so not this
    // one, neither by the watchdog nor because its connection is heard of.
    this.account = client.lock(ACCOUNT, { lease: LEASE, wait: PATIENCE, watchdog: false, bound: false });
  }

  static async start(where, name, ledger) {
    return new Service(await connectAs(where, 'payments', name), ledger);
  }

  /** The same order may come any number of times, to any process. `before` and `after` are where accidents happen. */
  pay(order, cents, { before = () => {}, after = async () => {}, signal } = {}) {
    const work = (run) => this.account.call(async (held) => {
      before();
      // There is a fence unless one asked to go on while the server is away, which this service did not.
      const receipt = await this.ledger.pay({ order, orderFence: run.fence ?? 0n, account: ACCOUNT, accountFence: held.fence ?? 0n, cents });
      await after();
      return receipt;
    }, { signal: run.signal });
    return this.orders.run(order, { cents }, work, { signal });
  }
}

// ---- a process of its own, which falls asleep ----------------------------------------------------------------------------------

async function sleeper({ where, order, alarm }) {
  // The ledger is elsewhere: it is asked by message, and replies by message.
  const asked = new Map();
  parentPort.on('message', ({ id, receipt }) => (receipt ? asked.get(id).resolve(receipt) : asked.get(id).reject(new StaleFence())));
  const ledger = {
    pay: (payment) => new Promise((resolve, reject) => {
      asked.set(asked.size + 1, { resolve, reject });
      parentPort.postMessage({ id: asked.size, payment });
    }),
  };
  const service = await Service.start(where, 'pod-1', ledger);
  const before = () => {
    // Inside of the lock, whose lease nobody renews.
    parentPort.postMessage({ asleep: true });
    Atomics.wait(alarm, 0, 0, PATIENCE);
  };
  const outcome = await service.pay(order, 900, { before }).then(() => 'nothing', (error) => error.code ?? error.constructor.name);
  const again = await service.pay(order, 900);
  await service.client.shutdown(LEASE);
  parentPort.postMessage({ outcome, again });
  parentPort.close();
}

/** Starts it. `asleep` is when it sleeps, `end` what it came to. */
function startSleeper(where, order, ledger) {
  const alarm = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(new URL(import.meta.url), { workerData: { sleeper: { where, order, alarm } } });
  const asleep = new Promise((resolve) => { worker.on('message', (message) => message.asleep && resolve()); });
  const end = new Promise((resolve) => { worker.on('message', (message) => message.outcome && resolve(message)); });
  worker.on('message', ({ id, payment }) => {
    if (payment) ledger.pay(payment).then((receipt) => worker.postMessage({ id, receipt }), () => worker.postMessage({ id }));
  });
  const failed = once(worker, 'error').then(([error]) => { throw error; });
  const wake = () => {
    Atomics.store(alarm, 0, 1);
    Atomics.notify(alarm, 0);
  };
  return { asleep: Promise.race([asleep, failed]), end: Promise.race([end, failed]), wake };
}

// ---- the story -----------------------------------------------------------------------------------------------------------------

/** What was seen, for the tests to judge. */
export async function story(where) {
  const ledger = new Ledger();
  const [first, second] = [await Service.start(where, 'pod-1', ledger), await Service.start(where, 'pod-2', ledger)];
  const today = thisRun();
  const order = (number) => `order-${today}-${number}`;

  console.log('A customer clicks a hundred times; half of the clicks reach pod-1, half pod-2.');
  const outcomes = await Promise.all(Array.from({ length: 100 }, (_, click) => (click % 2 ? second : first).pay(order(1), 700)));
  const replays = outcomes.filter((outcome) => outcome.replayed).length;
  const paymentsAfterDuplicates = ledger.receipts.size;
  console.log(`  ${outcomes.length} replies, all with a receipt: ${replays} replays, ${paymentsAfterDuplicates} payment`);

  console.log('The same order with another amount is not the same order.');
  const mismatch = await second.pay(order(1), 70_000).then(() => 'no', (error) => error.code);
  console.log(`  refused: ${mismatch}`);

  console.log('pod-1 takes order 2, has the account and falls asleep before it pays: a pause, a swapped-out machine.');
  const sleeping = startSleeper(where, order(2), ledger);
  await sleeping.asleep;
  const meanwhile = await second.pay(order(4), 500);
  console.log('  pod-2 waited for its lease to end, and pays another order of the same account');
  sleeping.wake();
  const { outcome, again: sleeperAgain } = await sleeping.end;
  console.log(`  pod-1 wakes and pays, as it thinks it may; refused, (its fence, the highest seen): ${ledger.refused.join('; ')}`);
  // LOCK_LOST: the call sees that its lease is over.
  console.log(`  the caller of pod-1 gets ${outcome}`);
  console.log(`  it asks again, with a lease of its own, and the order is paid: ${JSON.stringify(sleeperAgain.value)}`);

  console.log('pod-1 pays order 3 and dies before it can say so.');
  const death = new AbortController();
  const dying = new Promise((paid) => {
    const after = () => { paid(); return new Promise(() => {}); };
    first.pay(order(3), 300, { after, signal: death.signal }).catch(() => {});
  });
  await dying;
  death.abort();
  const afterCrash = await second.pay(order(3), 300);
  console.log(`  pod-2 gets attempt ${afterCrash.attempt}; the ledger has the payment, and it stays one`);

  const [payments, balance] = [ledger.receipts.size, ledger.balances.get(ACCOUNT)];
  console.log(`${payments} orders, ${payments} payments, ${100_000 - balance} cents spent.`);
  for (const { client } of [first, second]) await client.shutdown(LEASE);
  return {
    outcomes, replays, paymentsAfterDuplicates, mismatch, outcome, refusedFences: ledger.refused, meanwhile, sleeperAgain, afterCrash, payments, balance,
  };
}

if (!isMainThread && workerData?.sleeper) await sleeper(workerData.sleeper);
else if (isProgram(import.meta.url)) await story(url());
