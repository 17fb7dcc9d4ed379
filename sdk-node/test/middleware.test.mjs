/**
 * The middleware over real HTTP: limits by tier and Idempotency-Key, on Express and on Fastify, in memory and on a server.
 */
import assert from 'node:assert/strict';
import { Agent, createServer, request as ask1 } from 'node:http';
import net from 'node:net';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';
import express from 'express';
import { connect, perMinute, perDay, InvalidArgumentError } from 'resil';
import { idempotency, rateLimit } from 'resil/express';
import { Servers } from '../../tests/harness/servers.mjs';
import { ask, frameworks, order } from './middleware_apps.mjs';
import { until } from './waiting.mjs';

const BOUND = { timeout: 60_000 };
let servers;
let names = 0;
const places = {
  memory: async () => `memory://middleware-${names += 1}`,
  server: async () => (await (servers ??= new Servers()).start()).url,
};
after(() => servers?.close());

/** A gate: every caller waits until it is opened. */
function gate() {
  const made = {};
  made.opened = new Promise((resolve) => { made.open = resolve; });
  made.reached = new Promise((resolve) => { made.reach = resolve; });
  return made;
}

/** What `fetch` does not tell: the length as it was said, and whether the connection had served before. */
async function overOneConnection(agent, url, key, body) {
  const headers = { 'content-type': 'text/plain', 'x-user': 'ann', ...(key === undefined ? {} : { 'idempotency-key': key }) };
  const request = ask1(`${url}/orders`, { method: 'POST', agent, headers }).end(body);
  const [response] = await once(request, 'response');
  let length = 0;
  for await (const chunk of response) length += chunk.length;
  // The connection goes back to the agent one turn later.
  await new Promise((resolve) => { setImmediate(resolve); });
  return { status: response.statusCode, said: response.headers['content-length'], length, isReused: request.reusedSocket };
}

for (const [framework, start] of Object.entries(frameworks)) {
  for (const [place, urlOf] of Object.entries(places)) {
    describe(`${framework}, ${place}`, BOUND, () => {
      let clients, apps;
      before(async () => {
        const url = await urlOf();
        clients = [await connect(url, { name: 'one' }), await connect(url, { name: 'two' })];
        apps = [];
      });
      after(async () => {
        for (const app of apps) await app.close();
        for (const client of clients) await client.shutdown(1_000);
      });
      /** The service as two processes. */
      const serve = async (make) => {
        const both = await Promise.all(clients.map((client) => start(make(client))));
        apps.push(...both);
        return both.map((app) => app.url);
      };
      const ordersOf = (name, work, more = {}) => (client) => ({
        orders: { client, name, tenant: (request) => request.headers['x-user'] ?? '', required: true, ...more }, work,
      });

      test('what failed is given back where that is asked for', async () => {
        const name = `refunded-${names += 1}`;
        const [one] = await serve((client) => ({
          tier: () => ({ limiter: client.limiter(name, perMinute(4)), key: 'ann', cost: 2 }), limits: { refund: (status) => status >= 500 },
          work: async (body, run, request) => ({ status: Number(request.headers['x-status']), body: '' }),
        }));
        const status = async (asked) => (await ask(one, { headers: { 'x-status': String(asked) } })).status;
        const left = async () => (await clients[0].limiter(name, perMinute(4)).peek('ann')).remaining;
        for (let turn = 0; turn < 4; turn += 1) {
          assert.equal(await status(503), 503);
          await until(async () => await left() === 4);
        }
        assert.deepEqual([await status(200), await status(404), await status(200)], [200, 404, 429]);
      });

      test('processes share a tier’s limit, and responses say it', async () => {
        const [one, two] = await serve((client) => {
          const free = client.limiter('free', perMinute(5));
          const pro = client.limiter('pro', perMinute(100, { burst: 10, tiers: [{ limit: 2_000, period: '1d' }] }));
          const tier = (request) => {
            const user = request.headers['x-user'];
            if (user === undefined) return null;
            return { limiter: user.startsWith('pro') ? pro : free, key: user };
          };
          return { tier, work: async () => ({ body: 'prices' }) };
        });
        const replies = [];
        for (let turn = 0; turn < 7; turn += 1) replies.push(await ask([one, two][turn % 2], { headers: { 'x-user': 'ann' } }));
        assert.deepEqual(replies.map((reply) => reply.status), [200, 200, 200, 200, 200, 429, 429]);
        replies.forEach((reply, turn) => {
          assert.equal(reply.headers.get('ratelimit-policy'), '"free";q=5;w=60');
          assert.equal(reply.headers.get('x-ratelimit-remaining'), String(Math.max(4 - turn, 0)));
          assert.equal(reply.headers.has('retry-after'), reply.status === 429, 'only who is refused learns when');
        });
        const refused = replies[5];
        assert.match(refused.headers.get('content-type'), /^application\/problem\+json/);
        const wait = Number(refused.headers.get('retry-after'));
        assert.ok(wait >= 1 && wait <= 12, `one in twelve seconds: ${wait}`);
        const said = JSON.parse(refused.body);
        assert.deepEqual([said.status, said.code, said['violated-policies']], [429, 'RATE_LIMIT_EXCEEDED', ['free']]);

        for (let turn = 0; turn < 7; turn += 1) {
          const reply = await ask(one, { headers: { 'x-user': 'pro-pat' } });
          assert.deepEqual([reply.status, reply.body], [200, 'prices']);
          assert.equal(reply.headers.get('ratelimit-policy'), '"pro-1m";q=10;w=6, "pro-1d";q=2000;w=86400');
          assert.match(reply.headers.get('ratelimit'), /^"pro-1m";/, 'the tier that binds');
        }
        const unlimited = await ask(one);
        assert.deepEqual([unlimited.status, unlimited.headers.has('ratelimit')], [200, false]);
      });

      test('headers are those requested, and a cost is a cost', async () => {
        const [one] = await serve((client) => {
          const limiter = client.limiter('dear', perMinute(10));
          return {
            tier: async () => ({ limiter, key: 'all', cost: 4, name: 'api' }), limits: { headers: 'ietf', reset: 'at' }, work: async () => ({ body: '' }),
          };
        });
        const replies = [await ask(one), await ask(one), await ask(one)];
        assert.deepEqual(replies.map((reply) => reply.status), [200, 200, 429]);
        assert.deepEqual(replies.map((reply) => reply.headers.get('ratelimit').split(';')[1]), ['r=6', 'r=2', 'r=2']);
        assert.equal(replies[0].headers.has('x-ratelimit-limit'), false);
        assert.match(replies[2].body, /"violated-policies":\["api"\]/);
      });

      test('an order with no key or a bad one fails', async () => {
        let made = 0;
        const [one] = await serve(ordersOf('plain', async () => ({ status: 201, body: String(made += 1) })));
        const missing = await order(one, undefined, 'tea');
        assert.equal(missing.status, 400);
        assert.match(missing.body, /Idempotency-Key is required/);
        assert.equal((await order(one, '"half', 'tea')).status, 400);
        assert.equal(made, 0);
        assert.equal((await ask(`${one}/orders`)).status, 201, 'a GET has no key');
        const [optional] = await serve(ordersOf('optional', async () => ({ status: 201, body: String(made += 1) }), { required: false }));
        assert.equal((await order(optional, undefined, 'tea')).status, 201);
      });

      test('concurrent duplicates are one order with one response', async () => {
        let made = 0;
        const [one, two] = await serve(ordersOf('crowd', async (body, run) => {
          made += 1;
          assert.equal(run.attempt, 1);
          await new Promise((resolve) => { setTimeout(resolve, 100); });
          return { status: 201, headers: { location: '/orders/7', 'x-odd': 'gr\xfcn' }, body: `{"made":"${body}"}` };
        }, { wait: 20_000 }));
        const replies = await Promise.all(Array.from({ length: 40 }, (_, turn) => order([one, two][turn % 2], turn % 3 ? 'k-1' : '"k-1"', 'tea')));
        assert.equal(made, 1);
        for (const reply of replies) {
          assert.deepEqual([reply.status, reply.body, reply.headers.get('location')], [201, '{"made":"tea"}', '/orders/7']);
          assert.equal(reply.headers.get('x-odd'), 'gr\xfcn');
        }
        const replayed = replies.filter((reply) => reply.headers.get('idempotency-replayed') === 'true');
        assert.equal(replayed.length, 39);
      });

      test('duplicates get 409, then the first response, others 422', async () => {
        const held = gate();
        let made = 0;
        const [one, two] = await serve(ordersOf('slow', async () => {
          made += 1;
          held.reach();
          await held.opened;
          return { status: 201, body: `order ${made}` };
        }, { wait: 0 }));
        const first = order(one, 'k', 'tea');
        await held.reached;
        const meanwhile = await order(two, 'k', 'tea');
        assert.equal(meanwhile.status, 409);
        assert.ok(Number(meanwhile.headers.get('retry-after')) >= 1);
        assert.match(meanwhile.body, /IDEMPOTENCY_BUSY/);
        held.open();
        assert.deepEqual([(await first).status, (await first).body, (await first).headers.get('idempotency-replayed')], [201, 'order 1', null]);
        const again = await order(two, 'k', 'tea');
        assert.deepEqual([again.status, again.body, again.headers.get('idempotency-replayed')], [201, 'order 1', 'true']);
        const other = await order(two, 'k', 'coffee');
        assert.equal(other.status, 422);
        assert.match(other.body, /IDEMPOTENCY_MISMATCH/);
        const otherPath = await ask(`${one}/elsewhere?a=1`, { method: 'POST', body: 'tea', headers: { 'idempotency-key': 'k', 'x-user': 'ann', 'content-type': 'text/plain' } });
        assert.equal(otherPath.status, 422);
        assert.equal(made, 1);
        held.opened = Promise.resolve();
        assert.equal((await order(one, 'k', 'tea', { 'x-user': 'bob' })).body, 'order 2', "another tenant's key is another key");
      });

      test('what failed is not kept: the next request runs', async () => {
        const replies = [() => ({ status: 503, body: 'later' }), () => { throw new Error('broken'); }, () => ({ status: 404, body: 'none' }), () => ({ status: 201, body: 'never' })];
        const [one] = await serve(ordersOf('failing', async () => replies.shift()()));
        assert.deepEqual([(await order(one, 'k', 'x')).status, (await order(one, 'k', 'x')).status], [503, 500]);
        const final = [await order(one, 'k', 'x'), await order(one, 'k', 'x')];
        assert.deepEqual(final.map(({ status, body }) => [status, body]), [[404, 'none'], [404, 'none']], 'what will not change is kept');
        assert.equal(replies.length, 1);
      });

      test('large requests are 413, large responses are not kept', async () => {
        const seen = [];
        const [one] = await serve(ordersOf('large', async (body) => {
          seen.push(body.length);
          return { status: 201, headers: { 'content-type': 'text/plain' }, body: 'x'.repeat(body === 'large' ? 5_000 : 4) };
        }, { maxBody: 1_000, maxResponse: 1_000 }));
        const refused = await order(one, 'k1', 'y'.repeat(1_001));
        assert.deepEqual([refused.status, seen.length], [413, 0]);
        assert.match(refused.headers.get('content-type'), /problem/);
        const chunked = await chunkedOrder(one, 'k2', ['y'.repeat(600), 'y'.repeat(600)]);
        assert.deepEqual([chunked, seen.length], [413, 0]);
        assert.equal((await order(one, 'k3', 'y'.repeat(1_000))).status, 201);
        assert.equal(await chunkedOrder(one, 'k4', ['y'.repeat(400), 'y'.repeat(300)]), 201);
        assert.deepEqual(seen, [1_000, 700], 'the handler gets all of it');

        const large = await order(one, 'k5', 'large');
        assert.deepEqual([large.status, large.body.length], [201, 5_000]);
        const again = await order(one, 'k5', 'large');
        assert.equal(again.status, 409);
        assert.match(again.body, /is done/);
        assert.deepEqual(seen, [1_000, 700, 5], 'it is not made twice');
      });

      test('an empty body is a body, and blame is right', async () => {
        let made = 0;
        const work = async () => ({ status: 201, body: String(made += 1) });
        const [one] = await serve(ordersOf('empty', work));
        const replies = [await order(one, 'k', ''), await order(one, 'k', undefined), await order(one, 'k', 'tea')];
        assert.deepEqual(replies.map(({ status }) => status), [201, 201, 422]);
        assert.equal(made, 1);
        for (const [at, tenant] of [undefined, null, 7, {}].entries()) {
          const [nobody] = await serve(ordersOf(`nobody${at}`, work, { tenant: () => tenant }));
          assert.equal((await order(nobody, 'k', 'tea')).status, 500, 'who asks has a name, or nothing is kept');
        }
        const [named] = await serve(ordersOf('named', work, { tenant: (request) => request.headers['x-user'] }));
        made = 0;
        assert.equal((await order(named, 'k1', 'tea', { 'x-user': 'ann' })).body, '1');
        assert.equal((await order(named, 'ann:k1', 'tea', { 'x-user': '' })).body, '2', 'no key names the response of another');
        made = 1;
        const [unlimited] = await serve(() => ({ tier: () => ({ limiter: {}, key: 'x' }), work }));
        assert.equal((await ask(unlimited)).status, 500);
        assert.equal(made, 1);
      });

      test('a customer who hangs up cuts no order short', async () => {
        const held = gate();
        const [one, two] = await serve(ordersOf('hang-up', async () => {
          held.reach();
          await held.opened;
          return { status: 201, body: 'made' };
        }, { wait: 20_000 }));
        const leaving = new AbortController();
        const left = fetch(`${one}/orders`, { method: 'POST', body: 'tea', signal: leaving.signal, headers: { 'idempotency-key': 'k', 'x-user': 'ann', 'content-type': 'text/plain' } });
        await held.reached;
        leaving.abort();
        await assert.rejects(left);
        const again = order(two, 'k', 'tea');
        held.open();
        const { status, body, headers } = await again;
        assert.deepEqual([status, body, headers.get('idempotency-replayed')], [201, 'made', 'true']);
      });

      test('a substitute response has its length and keeps the connection', async () => {
        const [one] = await serve(ordersOf('framed', async () => ({ status: 201, body: 'tea' })));
        const agent = new Agent({ keepAlive: true, maxSockets: 1 });
        const replies = [];
        for (const [key, body] of [['k', 'tea'], ['k', 'tea'], ['k', 'coffee'], [undefined, 'tea'], ['k', 'tea']]) {
          replies.push(await overOneConnection(agent, one, key, body));
        }
        agent.destroy();
        assert.deepEqual(replies.map(({ status }) => status), [201, 201, 422, 400, 201]);
        for (const { status, length, said } of replies) assert.equal(said, String(length), `${status} says its length`);
        assert.deepEqual(replies.map(({ isReused }) => isReused), [false, true, true, true, true]);
      });

      test('the connection survives a chunked body that is too large', async () => {
        let made = 0;
        const [one] = await serve(ordersOf('refused', async () => ({ status: 201, body: String(made += 1) }), { maxBody: 1_000 }));
        const { hostname, port } = new URL(one);
        const socket = net.connect(Number(port), hostname);
        await once(socket, 'connect');
        let heard = '';
        socket.setEncoding('latin1').on('data', (data) => { heard += data; });
        const head = (key) => `POST /orders HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\nx-user: ann\r\nidempotency-key: ${key}\r\n`;
        const chunk = `400\r\n${'y'.repeat(0x400)}\r\n`;
        socket.write(`${head('large')}transfer-encoding: chunked\r\n\r\n${chunk}`);
        await until(() => heard.includes('HTTP/1.1 413'));
        socket.write(`${chunk.repeat(64)}0\r\n\r\n`);
        socket.write(`${head('small')}content-length: 3\r\n\r\ntea`);
        await until(() => heard.includes('HTTP/1.1 201'));
        socket.destroy();
        assert.equal(made, 1);
      });

      test('two keys are 400, and so is an empty one', async () => {
        let made = 0;
        const [one] = await serve(ordersOf('odd-keys', async () => ({ status: 201, body: String(made += 1) }), { required: false }));
        for (const keys of [['a', 'b'], ['a', 'a'], [''], ['""'], [' ']]) {
          const asked = ask1(`${one}/orders`, { method: 'POST', headers: { 'idempotency-key': keys, 'x-user': 'ann', 'content-type': 'text/plain' } }).end('tea');
          const [response] = await once(asked, 'response', { signal: AbortSignal.timeout(30_000) });
          const body = (await response.toArray()).join('');
          assert.equal(response.statusCode, 400, `${keys}`);
          assert.match(body, /Idempotency-Key/);
        }
        assert.equal(made, 0);
      });

      test('which responses are kept is for the service to say', async () => {
        const statuses = [];
        const work = async () => ({ status: statuses.shift(), body: 'x' });
        const twice = async (url, key, first, second) => {
          statuses.splice(0, Infinity, first, second);
          return [(await order(url, key, 'tea')).status, (await order(url, key, 'tea')).status];
        };
        const [usual] = await serve(ordersOf('usual', work));
        for (const status of [401, 403, 408, 425, 429, 500, 503]) assert.deepEqual(await twice(usual, `k${status}`, status, 201), [status, 201], `${status} is not kept`);
        for (const status of [200, 201, 204, 302, 400, 404, 409, 422]) assert.deepEqual(await twice(usual, `k${status}`, status, 299), [status, status], `${status} is kept`);
        const [listed] = await serve(ordersOf('listed', work, { keepResponses: [201, 500] }));
        assert.deepEqual([await twice(listed, 'a', 500, 201), await twice(listed, 'b', 200, 201)], [[500, 500], [200, 201]]);
        const [chosen] = await serve(ordersOf('chosen', work, { keepResponses: (status) => status === 403 }));
        assert.deepEqual([await twice(chosen, 'a', 403, 201), await twice(chosen, 'b', 201, 202)], [[403, 403], [201, 202]]);
        const [odd] = await serve(ordersOf('odd', work, { keepResponses: () => 'yes' }));
        assert.deepEqual(await twice(odd, 'a', 201, 201), [500, 500], 'what is no response is no response');
      });

      test('a kept response counts head and body as size', async () => {
        let made = 0;
        const work = async (body) => { made += 1; return { status: 201, headers: { 'x-long': 'h'.repeat(Number(body)) }, body: 'b'.repeat(500) }; };
        const [one] = await serve(ordersOf('heads', work, { maxResponse: 1_500 }));
        assert.deepEqual([(await order(one, 'small', '10')).status, (await order(one, 'small', '10')).status, made], [201, 201, 1]);
        assert.deepEqual([(await order(one, 'large', '1000')).status, (await order(one, 'large', '1000')).status, made], [201, 409, 2]);
      });

      test('a response in parts streams, and is kept', async () => {
        for (const size of [10, 2_000]) {
          const held = gate();
          let made = 0;
          const work = async () => {
            made += 1;
            return { status: 201, headers: { 'content-type': 'text/plain' }, parts: (async function* () { yield 'first,'; await held.opened; yield 'x'.repeat(size); yield ',last'; })() };
          };
          const [one, two] = await serve(ordersOf(`streamed-${size}`, work, { maxResponse: 1_000, wait: 0 }));
          const response = await fetch(`${one}/orders`, { method: 'POST', body: 'tea', signal: AbortSignal.timeout(30_000), headers: { 'idempotency-key': 'k', 'x-user': 'ann', 'content-type': 'text/plain' } });
          const reader = response.body.getReader();
          const { value } = await reader.read();
          assert.equal(Buffer.from(value).toString(), 'first,', 'while it is still being made');
          assert.equal((await order(two, 'k', 'tea')).status, 409, 'it is not done');
          held.open();
          let rest = '';
          for (let next = await reader.read(); !next.done; next = await reader.read()) rest += Buffer.from(next.value).toString();
          assert.equal(rest, `${'x'.repeat(size)},last`);
          const again = await order(two, 'k', 'tea');
          if (size === 10) assert.deepEqual([again.status, again.body, again.headers.get('content-type').split(';')[0]], [201, `first,${'x'.repeat(size)},last`, 'text/plain']);
          else assert.deepEqual([again.status, /is done/.test(again.body)], [409, true]);
          assert.equal(made, 1);
        }
      });

      test('a response whose client leaves is completed and kept', async () => {
        const held = gate();
        const work = async () => ({ status: 201, parts: (async function* () { yield 'first,'; await held.opened; yield 'last'; })() });
        const [one, two] = await serve(ordersOf('left', work, { wait: 20_000 }));
        const leaving = new AbortController();
        const response = await fetch(`${one}/orders`, { method: 'POST', body: 'tea', signal: leaving.signal, headers: { 'idempotency-key': 'k', 'x-user': 'ann', 'content-type': 'text/plain' } });
        await response.body.getReader().read();
        leaving.abort();
        const again = order(two, 'k', 'tea');
        held.open();
        assert.deepEqual([(await again).status, (await again).body], [201, 'first,last']);
      });

      test('a replayed response says what is left now', async () => {
        const [one] = await serve((client) => {
          const limiter = client.limiter('both', perDay(10));
          return { ...ordersOf('both', async () => ({ status: 201, body: 'made' }))(client), tier: () => ({ limiter, key: 'ann' }) };
        });
        const replies = [await order(one, 'k', 'tea'), await order(one, 'k', 'tea')];
        assert.deepEqual(replies.map((reply) => reply.headers.get('x-ratelimit-remaining')), ['9', '8']);
        assert.deepEqual(replies.map((reply) => reply.body), ['made', 'made']);
      });
    });
  }
}

/** An order whose length is not known beforehand. */
async function chunkedOrder(url, key, parts) {
  const asked = ask1(`${url}/orders`, { method: 'POST', headers: { 'idempotency-key': key, 'x-user': 'ann', 'content-type': 'text/plain' } });
  for (const part of parts) asked.write(part);
  asked.end();
  const [response] = await once(asked, 'response', { signal: AbortSignal.timeout(30_000) });
  response.resume();
  return response.statusCode;
}

for (const [framework, start] of Object.entries(frameworks)) {
  test(`a response that cannot be recorded breaks off (${framework})`, BOUND, async () => {
    servers ??= new Servers();
    const server = await servers.start();
    const client = await connect(server.url);
    const held = gate();
    const work = async () => ({ status: 201, parts: (async function* () { yield 'first,'; await held.opened; yield 'last'; })() });
    const app = await start({ orders: { client, name: 'lost', tenant: () => 'all', lease: 30_000 }, work });
    const response = await fetch(`${app.url}/orders`, { method: 'POST', body: 'tea', signal: AbortSignal.timeout(30_000), headers: { 'idempotency-key': 'k', 'content-type': 'text/plain' } });
    assert.equal(response.status, 201);
    await server.say('DEL', 'resil:idemp:lost:{all:k}');
    held.open();
    await assert.rejects(response.text());
    await app.close();
    await client.shutdown(0);
  });
}

test('a plain Node server keeps responses in parts whole', BOUND, async () => {
  const client = await connect('memory://');
  const keys = idempotency({ client, name: 'parts', tenant: () => 'all' });
  let made = 0;
  const server = createServer((request, response) => keys(request, response, () => {
    made += 1;
    let body = '';
    request.setEncoding('utf8').on('data', (chunk) => { body += chunk; }).on('end', () => {
      response.writeHead(202, { 'Content-Type': 'text/plain', 'X-List': ['a', 'b'] });
      response.write('you said: ');
      response.write(Buffer.from(body), () => response.end('!'));
    });
  })).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${server.address().port}`;
  const replies = [await order(url, 'k', 'tea'), await order(url, 'k', 'tea')];
  for (const { status, body, headers } of replies) {
    assert.deepEqual([status, body, headers.get('x-list')], [202, 'you said: tea!', 'a, b']);
  }
  assert.equal(made, 1);
  server.closeAllConnections();
  server.close();
  await client.shutdown(0);
});

test('a parsed body counts, and raw bytes count first', BOUND, async () => {
  const client = await connect('memory://');
  let made = 0;
  const app = express();
  app.use('/raw', express.json({ verify: (request, response, bytes) => { request.rawBody = bytes; } }));
  app.use(express.json(), idempotency({ client, name: 'parsed', tenant: () => 'all', maxBody: 100 }));
  app.post(['/orders', '/raw/orders'], (request, response) => response.status(201).json({ made: made += 1, item: request.body.item }));
  const server = app.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${server.address().port}`;
  const json = { 'content-type': 'application/json' };
  const replies = [await order(url, 'k', '{"item":"tea"}', json), await order(url, 'k', '{ "item": "tea" }', json), await order(url, 'k', '{"item":"coffee"}', json)];
  assert.deepEqual(replies.map(({ status }) => status), [201, 201, 422], 'spaces say nothing to a parser');
  assert.equal(replies[1].body, '{"made":1,"item":"tea"}');
  const raw = [await order(`${url}/raw`, 'r', '{"item":"tea"}', json), await order(`${url}/raw`, 'r', '{ "item": "tea" }', json)];
  assert.deepEqual(raw.map(({ status }) => status), [201, 422], 'the bytes differ');
  const large = await order(url, 'l', `{"item":"${'x'.repeat(200)}"}`, json);
  assert.deepEqual([large.status, made], [413, 2]);
  server.closeAllConnections();
  server.close();
  await client.shutdown(0);
});

test('an absent server is a response, not an accident', BOUND, async () => {
  const client = await connect('redis://127.0.0.1:1', { commandTimeout: 100 });
  const closed = client.limiter('closed', perMinute(5, { whenAway: 'closed' }));
  const limited = rateLimit({ tier: () => ({ limiter: closed, key: 'x' }) });
  const keyed = idempotency({ client, name: 'away', tenant: () => 'all' });
  const server = createServer((request, response) => (request.method === 'GET' ? limited : keyed)(request, response, () => response.end('in')));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${server.address().port}`;
  for (const reply of [await ask(url), await order(url, 'k', 'tea')]) {
    assert.equal(reply.status, 503);
    assert.equal(JSON.parse(reply.body).code, 'BACKEND_UNAVAILABLE');
    assert.doesNotMatch(reply.body, /127\.0\.0\.1/, 'nobody outside learns where it is');
  }
  server.closeAllConnections();
  server.close();
  await client.shutdown(0);
});

test('the middleware refuses unusable options by name when made', async () => {
  const client = await connect('memory://');
  const refused = (make, name) => assert.throws(make, (error) => error instanceof InvalidArgumentError && error instanceof TypeError && error.message.includes(name) || assert.fail(`${name}: ${error}`));
  refused(() => rateLimit({}), 'tier');
  refused(() => rateLimit({ tier: () => null, reset: 'soon' }), 'reset');
  refused(() => rateLimit({ tier: () => null, tear: 1 }), 'tear');
  refused(() => idempotency({ client: {}, name: 'x', tenant: () => '' }), 'client');
  refused(() => idempotency({ client, name: 'x' }), 'tenant');
  refused(() => idempotency({ client, name: 'x', tenant: () => '', maxBody: -1 }), 'maxBody');
  refused(() => idempotency({ client, name: 7, tenant: () => '' }), 'name');
  assert.throws(() => idempotency({ client, name: 'x', tenant: () => '', leese: '1s' }), /leese/);
  await client.shutdown(0);
});
