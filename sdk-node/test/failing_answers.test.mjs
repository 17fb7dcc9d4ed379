/** Handlers that fail in the middle of their replies, and replies that say little: the same on Express and on Fastify. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request as ask1 } from 'node:http';
import { Readable, pipeline } from 'node:stream';
import { after, test } from 'node:test';
import express from 'express';
import { connect, requestFingerprint } from 'resil';
import { idempotency } from 'resil/express';
import { frameworks, order } from './middleware_apps.mjs';
import { until } from './waiting.mjs';

const BOUND = { timeout: 30_000 };
const client = await connect('memory://');
const apps = [];
after(async () => {
  for (const app of apps) await app.close();
  await client.shutdown(1_000);
});

/** The middleware waits for nobody: who finds the key busy is notified at once. */
const ordersOf = (name) => ({ client, name, tenant: () => 'ann', required: true, wait: 0 });

async function listening(server) {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${server.address().port}`;
  apps.push({ close: () => new Promise((done) => { server.closeAllConnections(); server.close(done); }) });
  return url;
}

async function* broken() {
  yield 'one\n';
  await new Promise((resolve) => { setTimeout(resolve, 20); });
  throw new Error('in the middle');
}

/** How services on Express, and on Node's own server, fail when the reply has begun. */
const FAILING = {
  'a handler that throws': async (name, next) => {
    const app = express().set('env', 'test').use(idempotency(ordersOf(name)));
    app.post('/orders', async (request, response) => {
      if (!next()) return response.send('done');
      for await (const part of broken()) response.write(part);
      return response.end();
    });
    return listening(createServer(app));
  },
  'a handler of a route of a router, with an error handler that passes it on': async (name, next) => {
    const router = express.Router();
    router.post('/orders', idempotency(ordersOf(name)), (request, response, done) => {
      if (!next()) return response.send('done');
      response.write('one\n');
      setTimeout(() => done(new Error('in the middle')), 20);
      return undefined;
    });
    const app = express().set('env', 'test').use(router);
    app.use((error, request, response, done) => (response.headersSent ? done(error) : response.status(500).send('broken')));
    return listening(createServer(app));
  },
  'a pipeline whose source fails': async (name, next) => {
    const app = express().use(idempotency(ordersOf(name)));
    app.post('/orders', (request, response) => (next() ? pipeline(Readable.from(broken()), response, () => {}) : response.send('done')));
    return listening(createServer(app));
  },
  'a pipeline of a server without Express': async (name, next) => {
    const guard = idempotency(ordersOf(name));
    return listening(createServer((request, response) => guard(request, response, () => (next() ? pipeline(Readable.from(broken()), response, () => {}) : response.end('done')))));
  },
  'a stream of Fastify': async (name, next) => {
    const app = await frameworks.fastify({ orders: ordersOf(name), work: async () => (next() ? { parts: broken() } : { body: 'done' }) });
    apps.push(app);
    return app.url;
  },
};

for (const [what, serve] of Object.entries(FAILING)) {
  test(`a reply failing midway frees its key: ${what}`, BOUND, async () => {
    let runs = 0;
    const url = await serve(what, () => { runs += 1; return runs === 1; });
    await assert.rejects(order(url, 'k', 'tea'));
    const again = await order(url, 'k', 'tea');
    assert.deepEqual([again.status, again.body, runs], [200, 'done', 2]);
    const replayed = await order(url, 'k', 'tea');
    assert.deepEqual([replayed.body, replayed.headers.get('idempotency-replayed'), runs], ['done', 'true', 2]);
  });
}

test('a client that hangs up midway frees no key', BOUND, async () => {
  let finish;
  let isClosed = false;
  const app = express().use(idempotency(ordersOf('hangs up')));
  app.post('/orders', (request, response) => {
    response.on('close', () => { isClosed = true; });
    response.write('one\n');
    finish = () => response.end('two\n');
  });
  const url = await listening(createServer(app));
  const headers = { 'content-type': 'text/plain', 'idempotency-key': 'k', 'x-user': 'ann' };
  const request = ask1(`${url}/orders`, { method: 'POST', headers }).end('tea');
  request.on('error', () => {});
  const [response] = await once(request, 'response');
  response.on('error', () => {});
  request.destroy();
  await until(() => isClosed);
  assert.equal((await order(url, 'k', 'tea')).status, 409, 'it is being worked on');
  finish();
  await until(async () => (await order(url, 'k', 'tea')).status === 200);
  assert.equal((await order(url, 'k', 'tea')).body, 'one\ntwo\n');
});

for (const [framework, start] of Object.entries(frameworks)) {
  test(`a reply without a type replays without one (${framework})`, BOUND, async () => {
    const app = await start({ orders: ordersOf(`untyped ${framework}`), work: async (_body, _run, request) => {
      request.res?.removeHeader('content-type');
      return { status: 200 };
    } });
    apps.push(app);
    const [first, replayed] = [await order(app.url, 'k', 'tea'), await order(app.url, 'k', 'tea')];
    assert.deepEqual([first.status, first.headers.get('content-type')], [200, null]);
    assert.deepEqual([replayed.status, replayed.headers.get('content-type'), replayed.headers.get('idempotency-replayed')], [200, null, 'true']);
  });

  test(`an empty query is none (${framework})`, BOUND, async () => {
    const app = await start({ orders: ordersOf(`queries ${framework}`), work: async () => ({ body: 'done' }) });
    apps.push(app);
    // Not by fetch, which leaves an empty query out.
    const post = async (path) => {
      const headers = { 'content-type': 'text/plain', 'idempotency-key': 'k', 'x-user': 'ann' };
      const [response] = await once(ask1({ host: '127.0.0.1', port: new URL(app.url).port, path, method: 'POST', headers }).end('tea'), 'response');
      response.resume();
      return [response.statusCode, response.headers['idempotency-replayed']];
    };
    assert.deepEqual(await post('/count?'), [200, undefined]);
    assert.deepEqual(await post('/count'), [200, 'true']);
    assert.deepEqual(await post('/count?a'), [422, undefined]);
  });
}

test('a fingerprint does not tell an empty query from none', () => {
  assert.equal(requestFingerprint('POST', '/a?', ''), requestFingerprint('POST', '/a', ''));
  assert.notEqual(requestFingerprint('POST', '/a??', ''), requestFingerprint('POST', '/a', ''));
  assert.notEqual(requestFingerprint('POST', '/a?b', ''), requestFingerprint('POST', '/a', ''));
});
