/**
 * An order service: each order and its event are written together, the events go to a broker, and a worker handles them.
 *
 * - **outbox**: the order and its event are in one transaction of Postgres, so there is never one without the other;
 * - **relay**: with RabbitMQ, a worker on the outbox publishes the events. One may be published twice, under one id;
 * - **worker**: it charges each order once, though events may come twice: a row in the transaction of the charge says that it happened;
 * - **poison**: an event that nobody can read is dead at once, and kept in the ledger with its error;
 * - **a broker restart in the middle**: the worker goes on by itself when its source is back.
 *
 * `node order_service.mjs [url] [postgres url] [amqp url]`: without RabbitMQ the worker reads the outbox itself; without Postgres the events come from a ledger, and this runs on `memory://`.
 */
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { Outbox, ProcessedEvents } from 'resil';
import { connectAs, isProgram, thisRun, url } from './running.mjs';

const PATIENCE_MS = 60_000;
const ORDERS = 20;

/** One connection for each piece of work. */
async function withPostgres(postgres, work) {
  const { default: pg } = await import('pg');
  const database = new pg.Client({ connectionString: postgres.split('?')[0] });
  // A connection that breaks is reported to the code that uses it.
  database.on('error', () => {});
  await database.connect();
  try {
    return await work(database);
  } finally {
    await database.end();
  }
}

async function together(database, work) {
  await database.query('BEGIN');
  try {
    await work();
    await database.query('COMMIT');
  } catch (error) {
    await database.query('ROLLBACK').catch(() => {});
    throw error;
  }
}

/** Charges each event once: in memory, or in a transaction with `processed_events`. */
class Bank {
  charged = new Map();

  constructor(run, postgres) {
    this.run = run;
    this.postgres = postgres;
  }

  async charge(message, { cents }) {
    if (this.postgres === undefined) {
      if (!this.charged.has(message.id)) this.charged.set(message.id, cents);
      return;
    }
    await withPostgres(this.postgres, async (database) => {
      await together(database, async () => {
        const { rowCount } = await database.query(ProcessedEvents.insert(), [this.run, message.id]);
        if (rowCount === 1) await database.query(`INSERT INTO charges_${this.run} VALUES ($1, $2)`, [message.id, cents]);
      });
      const { rows } = await database.query(`SELECT id, cents FROM charges_${this.run}`);
      this.charged = new Map(rows.map((row) => [row.id, row.cents]));
    });
  }
}

async function migrate(run, postgres) {
  await withPostgres(postgres, async (database) => {
    await database.query(new Outbox(`outbox_${run}`).migration());
    await database.query(ProcessedEvents.migration());
    await database.query(`CREATE TABLE orders_${run} (id int); CREATE TABLE charges_${run} (id text, cents int)`);
  });
}

/** Orders from one number to before another; behind the last there is one event that is no order. */
async function placeOrders(ledger, run, postgres, from, to) {
  const events = new Map();
  for (let order = from; order < to; order += 1) events.set(order, JSON.stringify({ order, cents: 100 + order }));
  if (to === ORDERS) events.set(ORDERS, '{');
  if (postgres === undefined) {
    for (const [number, payload] of events) await ledger.fail(`shop/${number}`, 'sent', { payload, count: 'not-counted' });
    return;
  }
  const outbox = new Outbox(`outbox_${run}`);
  await withPostgres(postgres, async (database) => {
    for (const [number, payload] of events) {
      await together(database, async () => { // both, or neither
        await database.query(`INSERT INTO orders_${run} VALUES ($1)`, [number]);
        await database.query(outbox.insert(), outbox.row(payload, { id: String(number), kind: 'order.placed' }));
      });
    }
  });
}

/** A worker that takes events from the outbox and publishes them. What was published is acknowledged; what was not stays. */
function relay(client, run, outbox, queue) {
  const publisher = client.publisher(queue);
  const worker = client.worker(`relay-${run}`, { source: outbox });
  const running = worker.run((message) => publisher.publish(message.payload, { id: message.id.split('/').at(-1), causedBy: message }));
  return { worker, running, publisher };
}

/** `restart` restarts what the worker takes from, while it runs. */
export async function story(where, { postgres, rabbit, restart } = {}) {
  const run = thisRun();
  const client = await connectAs(where, 'order_service', 'service');
  const ledger = client.deadLetters(`orders-${run}`, { actor: 'ada' });
  const quick = { base: 100, cap: 1000, retries: 20 };
  await ledger.configure({ jitter: 'none', transient: quick, external: quick });
  if (postgres !== undefined) await migrate(run, postgres);
  const bank = new Bank(run, postgres);
  let source = postgres === undefined ? undefined : { type: 'outbox', url: postgres, table: `outbox_${run}`, poll: 50, claim: 2000 };
  const outbox = source;
  if (rabbit !== undefined) source = { type: 'rabbit', url: rabbit, queue: `orders-${run}`, prefetch: 2, workers: 2 };
  const worker = client.worker(`orders-${run}`, { source, workers: 2 });
  const isHalfWay = () => bank.charged.size >= ORDERS / 2;
  const running = worker.run(async (message) => {
    await bank.charge(message, JSON.parse(message.payload)); // what cannot be read is dead at once
    if (isHalfWay()) await sleep(20);
  });
  const until = Date.now() + PATIENCE_MS;
  let relaying;
  if (rabbit !== undefined) {
    // The worker declares the queue: before that nothing takes an event.
    while (worker.health().source?.isConnected !== true && Date.now() < until) await sleep(20);
    await client.deadLetters(`relay-${run}`, { actor: 'ada' }).configure({ jitter: 'none', transient: quick, external: quick });
    relaying = relay(client, run, outbox, source);
  }
  await placeOrders(ledger, run, postgres, 0, ORDERS / 2);
  while (!isHalfWay() && Date.now() < until) await sleep(5);
  await restart?.(`orders-${run}`);
  await placeOrders(ledger, run, postgres, ORDERS / 2, ORDERS);
  while ((bank.charged.size < ORDERS || (await ledger.info()).dead < 1) && Date.now() < until) await sleep(20);
  const connections = worker.health().source?.connections ?? 0;
  worker.stop();
  const report = await running;
  relaying?.worker.stop();
  await relaying?.running;
  await relaying?.publisher.close();
  const { letters } = await ledger.list({ state: 'dead' });
  await client.shutdown();
  return { charged: [...bank.charged.values()].sort((a, b) => a - b), dead: letters.map(({ lastError }) => lastError), report, connections };
}

if (isProgram(import.meta.url)) {
  const seen = await story(url(), { postgres: process.argv[3], rabbit: process.argv[4] });
  console.log(`${ORDERS} orders were placed, and one event that nobody can read`);
  console.log(`  charged once each: ${seen.charged.length}, ${seen.charged.reduce((sum, cents) => sum + cents, 0)} cents in all`);
  for (const error of seen.dead) console.log(`  dead, and kept: ${error}`);
  for (const [name, count] of Object.entries(seen.report)) if (count > 0) console.log(`  ${name}: ${count}`);
  console.log(`  connections of the source: ${seen.connections}`);
}
