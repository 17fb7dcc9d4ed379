/** Workers on real brokers: what becomes of messages, also when a handler fails, a worker stops, or a broker dies under it. */
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import pg from 'pg';
import { CircuitOpenError, connect, Outbox, ProcessedEvents, WorkError } from 'resil';
import { startPostgres, startRabbit, startServer } from './servers.mjs';

/** Longer than anything here takes, on a machine that has much else to do. */
const BOUND = 60_000;
const KINDS = ['ledger', 'stream', 'rabbit', 'outbox'];

let [redis, rabbit, postgres] = [];
before(async () => {
  redis = await startServer({ config: { appendonly: 'yes', appendfsync: 'always' } });
  rabbit = await startRabbit();
  postgres = await startPostgres();
});

async function until(what, isSo) {
  const end = Date.now() + BOUND;
  while (!(await isSo())) {
    assert.ok(Date.now() < end, `waited in vain until ${what}`);
    await sleep(20);
  }
}

/** One connection for each piece of work. */
async function withPostgres(work) {
  const database = new pg.Client({ connectionString: postgres.url.split('?')[0] });
  await database.connect();
  try {
    return await work(database);
  } finally {
    await database.end();
  }
}

let last = 0;

/** A queue of some kind, with a name of its own: how it is read, and how messages get into it. */
class Place {
  constructor(kind, broker = rabbit) {
    this.kind = kind;
    last += 1;
    this.name = `orders_${process.pid}_${last}`;
    this.source = {
      ledger: { type: 'ledger', name: this.name },
      stream: { type: 'stream', stream: this.name, reclaim: 1000 },
      rabbit: { type: 'rabbit', url: broker.url, queue: this.name },
      outbox: { type: 'outbox', url: postgres.url, table: this.name, claim: 2000, poll: 50 },
    }[kind];
    this.outbox = new Outbox(this.name);
  }

  async client() {
    const client = await connect(redis.url, { commandTimeout: 1000 });
    const quick = { base: 100, cap: 100, retries: 2 };
    await client.deadLetters(this.name, { actor: 'ada' }).configure({ jitter: 'none', transient: quick, external: quick });
    if (this.kind === 'outbox') await withPostgres((database) => database.query(this.outbox.migration()));
    return client;
  }

  worker(client, options = {}) { return client.worker(this.name, { source: this.source, ...options }); }

  async send(client, payload, id = payload) {
    if (this.kind === 'ledger') {
      await client.deadLetters(this.name).fail(id, 'sent', { payload, count: 'not-counted' });
    } else if (this.kind === 'outbox') {
      await withPostgres((database) => database.query(this.outbox.insert(), this.outbox.row(payload, { id })));
    } else {
      this.publisher ??= client.publisher(this.source);
      assert.equal(await this.publisher.publish(payload, { id }), id);
    }
  }
}

const connected = (worker) => until('the source is connected', () => worker.health().source?.isConnected === true);

async function stopped(worker, running) {
  worker.stop();
  return running;
}

const MESSAGES = { fine: '"fine"', unlucky: '"unlucky"', poison: '"poison"', crash: '"crash"', unreadable: '{' };

for (const kind of KINDS) {
  test(`handlers decide: messages are done, retried or dead (${kind})`, async () => {
    const place = new Place(kind);
    const client = await place.client();
    const done = [];
    const worker = place.worker(client);
    const running = worker.run(async (message) => {
      await undefined;
      const payload = JSON.parse(message.payload);
      if (payload === 'poison') throw new WorkError('an order of nothing', 'permanent');
      if (payload === 'crash' || (payload === 'unlucky' && message.attempt === 0)) throw new TypeError(payload);
      done.push(payload);
    });
    await connected(worker);
    for (const [id, payload] of Object.entries(MESSAGES)) await place.send(client, payload, id);
    const ledger = client.deadLetters(place.name);
    await until('all are settled', async () => {
      const info = await ledger.info();
      return info.dead === 3 && info.waiting + info.taken === 0 && done.length === 2;
    });
    const health = worker.health();
    assert.ok(health.isLive && health.isReady && health.queue === place.name);
    assert.ok(health.source.since instanceof Date);
    const report = await stopped(worker, running);
    assert.deepEqual(done.sort(), ['fine', 'unlucky']);
    assert.deepEqual([report.done, report.dead], [2, 3]);
    const prefix = kind === 'ledger' ? '' : `${place.name}/`;
    for (const id of ['poison', 'crash', 'unreadable']) assert.equal((await ledger.get(prefix + id)).state, 'dead');
    assert.equal(worker.health().isReady, false);
    await client.shutdown();
  });

  test(`a stopped worker’s unfinished messages go back untried (${kind})`, async () => {
    const place = new Place(kind);
    const client = await place.client();
    const [begun, cancelled] = [[], []];
    const worker = place.worker(client, { workers: 1, drain: 200 });
    const stop = new AbortController();
    const running = worker.run((message) => {
      begun.push(message.id);
      return new Promise((resolve, reject) => {
        message.signal.addEventListener('abort', () => {
          cancelled.push(message.id);
          reject(new Error('cut off'));
        });
      });
    }, { signal: stop.signal });
    await connected(worker);
    for (const id of ['1', '2', '3']) await place.send(client, id);
    await until('one is begun', () => begun.length > 0);
    stop.abort();
    const report = await running;
    assert.deepEqual([report.done, report.retried, report.dead], [0, 0, 0]);
    assert.equal(begun.length, 1);
    await until('the handler has seen its end', () => cancelled.length === 1);
    const seen = new Map();
    const again = place.worker(client);
    const handling = again.run((message) => void seen.set(message.payload.toString(), message.attempt));
    await until('all are handled', () => seen.size === 3);
    await stopped(again, handling);
    assert.deepEqual([...seen.values()], [0, 0, 0]);
    await client.shutdown();
  });
}

test('a handler past its deadline stops, its message is dead', async () => {
  const place = new Place('ledger');
  const client = await place.client();
  let aborted = false;
  const worker = place.worker(client, { deadline: 100 });
  const running = worker.run((message) => {
    assert.ok(message.timeLeftMs > 0 && message.timeLeftMs <= 100);
    return new Promise(() => message.signal.addEventListener('abort', () => (aborted = true)));
  });
  await place.send(client, '1');
  await until('it is notified', () => aborted);
  await until('it is dead', () => worker.health().report.dead === 1);
  await stopped(worker, running);
  await client.shutdown();
});

test('an open circuit counts nothing, and pauses the worker', async () => {
  const place = new Place('stream');
  const client = await place.client();
  const attempts = [];
  const worker = place.worker(client);
  const running = worker.run((message) => {
    attempts.push(message.attempt);
    if (attempts.length === 1) throw new CircuitOpenError('open', { code: 'CIRCUIT_OPEN', retryAfterMs: 300 });
  });
  await place.send(client, '1');
  await until('it is paused', () => attempts.length === 1 && worker.health().isPaused);
  await until('it is retried', () => attempts.length === 2);
  const report = await stopped(worker, running);
  assert.deepEqual(attempts, [0, 0]);
  assert.deepEqual([report.done, report.retried], [1, 1]);
  await client.shutdown();
});

test('a judge decides what an error means', async () => {
  const place = new Place('stream');
  const client = await place.client();
  const worker = place.worker(client);
  const said = { drop: 'drop', dead: { verdict: 'permanent' }, broken: 7 };
  const running = worker.run((message) => { throw new Error(message.payload.toString()); }, { judge: (error) => said[error.message] });
  for (const payload of ['drop', 'dead', 'broken']) await place.send(client, payload);
  await until('all are judged', () => worker.health().report.dead === 2);
  const report = await stopped(worker, running);
  assert.deepEqual([report.dropped, report.dead, report.retried], [1, 2, 2]);
  await client.shutdown();
});

test('a handler’s own timeout is a failure that counts', async () => {
  const place = new Place('stream');
  const client = await place.client();
  const worker = place.worker(client);
  const attempts = [];
  const running = worker.run((message) => {
    attempts.push(message.attempt);
    if (attempts.length < 3) throw Object.assign(new Error('the bank took too long'), { name: 'AbortError' });
  });
  await place.send(client, 'x');
  await until('it succeeds', () => attempts.length === 3);
  const report = await stopped(worker, running);
  assert.deepEqual(attempts, [0, 1, 2]);
  assert.deepEqual([report.done, report.retried, report.givenBack], [1, 2, 0]);
  await client.shutdown();
});

test('an AggregateError is judged by what is in it', async () => {
  const client = await connect('memory://');
  const ledger = client.deadLetters('orders');
  const thrown = {
    unreadable: new SyntaxError('no JSON'),
    final: new WorkError('an order of nothing', 'permanent'),
    refused: Object.assign(new Error('no'), { code: 'ECONNREFUSED' }),
    unknown: new Error('no'),
  };
  for (const id of Object.keys(thrown)) await ledger.fail(id, 'before', { payload: id });
  const worker = client.worker('orders', { workers: 1 });
  const running = worker.run((message) => Promise.any([Promise.reject(thrown[message.payload.toString()])]));
  // What is given back keeps the error that it had, however often it is handled.
  for (const id of Object.keys(thrown)) await until(`${id} is judged`, async () => (await ledger.get(id)).lastError !== 'before');
  const report = await stopped(worker, running);
  assert.equal(report.dead, 2);
  const states = await Promise.all(Object.keys(thrown).map(async (id) => (await ledger.get(id)).state));
  assert.deepEqual(states, ['dead', 'dead', 'waiting', 'waiting']);
  await client.shutdown();
});

test('what is sent because of a message has its trace', async () => {
  const place = new Place('stream');
  const client = await place.client();
  const publisher = client.publisher(place.source);
  const seen = [];
  const worker = place.worker(client);
  const running = worker.run(async (message) => {
    seen.push(message);
    if (message.kind === 'order.placed') await publisher.publish('packed', { kind: 'order.packed', causedBy: message });
  });
  const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
  const headers = { traceparent: `00-${trace}-00f067aa0ba902b7-01`, HeaderID: 'request-7' };
  await publisher.publish('placed', { kind: 'order.placed', aggregate: 'order-42', schema: 2, headers });
  await until('both are handled', () => seen.length === 2);
  await stopped(worker, running);
  const [placed, packed] = seen;
  assert.deepEqual([placed.aggregate, placed.schema, placed.headers.HeaderID], ['order-42', 2, 'request-7']);
  assert.deepEqual([packed.traceId, packed.headerId], [trace, 'request-7']);
  assert.notEqual(packed.traceparent, placed.traceparent);
  await client.shutdown();
});

test('a message is delivered again after the broker was killed', async () => {
  const broker = await startRabbit();
  const place = new Place('rabbit', broker);
  const client = await place.client();
  const seen = [];
  let end;
  const mayEnd = new Promise((resolve) => (end = resolve));
  const worker = place.worker(client);
  const running = worker.run(async (message) => {
    seen.push([message.payload.toString(), message.isRedelivered]);
    await mayEnd;
  });
  await connected(worker);
  await place.send(client, '1');
  await until('it is begun', () => seen.length === 1);
  await broker.waitUntilRegistered(place.name);
  await broker.kill();
  await until('the loss is seen', () => !worker.health().source.isConnected);
  const health = worker.health();
  assert.ok(health.isReady && health.status === 'degraded' && health.source.reason !== undefined);
  await broker.restart();
  end();
  await until('it is delivered again', () => seen.length === 2);
  assert.deepEqual(seen, [['1', false], ['1', true]]);
  await until('the publisher is back, without traffic', () => place.publisher.health().isConnected);
  await place.send(client, '2');
  await until('the next one comes', () => seen.length === 3);
  const report = await stopped(worker, running);
  assert.equal(report.done, 2);
  await client.shutdown();
});

test('a message that no queue takes is an error', async () => {
  const client = await connect(redis.url);
  const publisher = client.publisher({ type: 'rabbit', url: rabbit.url, queue: 'nobody_reads_this' });
  await assert.rejects(publisher.publish('1'), { code: 'INVALID_ARGUMENT', message: /no queue takes messages/ });
  await publisher.close();
  await assert.rejects(publisher.publish('1'), { code: 'SHUTTING_DOWN' });
  await client.shutdown();
});

test('wrong settings are refused by their names', async () => {
  const client = await connect('memory://');
  const refused = (source, field) => assert.throws(() => client.worker('orders', { source }), { code: 'INVALID_POLICY', message: field });
  refused({ type: 'kafka' }, /^source\.type/);
  refused({ type: 'rabbit', queue: 'q', prefetch: 0 }, /^source\.prefetch/);
  refused({ type: 'rabbit', queue: 'q', deliveryLimt: 1 }, /^source\.deliveryLimt/);
  refused({ type: 'stream' }, /^source\.stream/);
  refused({ type: 'outbox', url: 'http://x' }, /^source\.url/);
  assert.throws(() => client.worker('orders', { workers: 0 }), /workers/);
  assert.throws(() => client.publisher({ type: 'ledger', name: 'orders' }), /can be published to/);
  await client.shutdown();
});

/** The recipe of docs/workers.md. */
async function effect(consumer, message) {
  await withPostgres(async (database) => {
    await database.query('BEGIN');
    const { rowCount } = await database.query(ProcessedEvents.insert(), [consumer, message.id]);
    if (rowCount === 1) await database.query('INSERT INTO effects VALUES ($1, $2)', [consumer, message.payload.toString()]);
    await database.query('COMMIT');
  });
}

test('duplicates have their effect once', async () => {
  const place = new Place('stream');
  await withPostgres(async (database) => {
    await database.query(ProcessedEvents.migration());
    await database.query('CREATE TABLE IF NOT EXISTS effects (consumer text, payload text)');
  });
  const client = await place.client();
  let handled = 0;
  const worker = place.worker(client);
  const running = worker.run(async (message) => {
    await effect(place.name, message);
    handled += 1;
    if (message.attempt === 0 && message.payload.toString() === '3') throw new Error('after its effect');
  });
  const numbers = ['0', '1', '2', '3', '4'];
  for (const number of numbers) for (let copy = 0; copy < 3; copy += 1) await place.send(client, number);
  await until('all are handled', () => handled >= 16);
  const report = await stopped(worker, running);
  assert.equal(report.dead, 0);
  const { rows } = await withPostgres((database) => database.query('SELECT payload FROM effects WHERE consumer = $1', [place.name]));
  assert.deepEqual(rows.map(({ payload }) => payload).sort(), numbers);
  await client.shutdown();
});

test('errors of a database are distinguished', async () => {
  const place = new Place('stream');
  const client = await place.client();
  const worker = place.worker(client);
  const running = worker.run((message) => withPostgres((database) => database.query(message.payload.toString())));
  await place.send(client, "SELECT 'seven'::int", 'unreadable');
  await until('it is dead', () => worker.health().report.dead === 1);
  const report = await stopped(worker, running);
  assert.equal(report.retried, 0);
  await client.shutdown();
});
