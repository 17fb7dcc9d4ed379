/**
 * An HTTP API: limits by tier, and orders that a client may send again.
 *
 * - Every response says what is left (`RateLimit`, `X-RateLimit-*`). A caller that has used it up gets 429, when to come back, and a body a
 *   program can read (`application/problem+json`).
 * - `POST /orders` needs an `Idempotency-Key`. Without one it is 400; while the first request is being worked on, 409; with the same
 *   key and another body, 422; afterwards, the first response again.
 *
 * All processes of the service share the limits and the keys: they are in Redis.
 *
 * `node http_api.mjs [url]`
 */
import { once } from 'node:events';
import express from 'express';
import { perMinute } from 'resil';
import { idempotency, rateLimit } from 'resil/express';
import { connectAs, isProgram, thisRun, url } from './running.mjs';

// ---- the service ---------------------------------------------------------------------------------------------------------------

/** Where orders go. It can be held up, so that the story can look at an order that is being worked on. */
class Warehouse {
  orders = 0;
  hasBegun = new Promise((resolve) => { this.begins = resolve; });
  mayContinue = new Promise((resolve) => { this.resume = resolve; });

  async ship(body) {
    this.orders += 1;
    const number = this.orders;
    if (body.includes('slow')) {
      this.begins();
      await this.mayContinue;
    }
    return { order: number };
  }
}

/** Who is asking. A real service would check a signature here. */
const userOf = (request) => request.headers['x-user'] ?? 'nobody';

function api(client, warehouse) {
  const free = client.limiter('free', perMinute(5));
  // A burst of ten, a hundred a minute, and not more than two thousand a day.
  const pro = client.limiter('pro', perMinute(100, { burst: 10, tiers: [{ limit: 2_000, period: '1d' }] }));
  const app = express();
  app.use(rateLimit({ tier: (request) => ({ limiter: userOf(request).startsWith('pro-') ? pro : free, key: userOf(request) }) }));
  app.get('/prices', (request, response) => response.json({ tea: 420 }));
  // Duplicates are asked to come back instead of being kept waiting.
  const oncePerKey = idempotency({ client, name: 'orders', tenant: userOf, required: true, wait: 0 });
  app.post('/orders', oncePerKey, express.text(), async (request, response) => {
    response.status(201).json(await warehouse.ship(request.body));
  });
  return app;
}

// ---- the customers -------------------------------------------------------------------------------------------------------------

async function ask(port, user, order) {
  const headers = { 'x-user': user, 'content-type': 'text/plain', ...(order?.key && { 'idempotency-key': order.key }) };
  const response = await fetch(`http://127.0.0.1:${port}/${order ? 'orders' : 'prices'}`, order ? { method: 'POST', headers, body: order.body } : { headers });
  return { status: response.status, headers: Object.fromEntries(response.headers), body: await response.text() };
}

function show({ status, headers, body }) {
  const shown = ['ratelimit', 'retry-after', 'idempotency-replayed'].filter((name) => name in headers).map((name) => `${name}: ${headers[name]}`);
  return `${status} ${body} [${shown.join(', ')}]`;
}

// ---- the story -----------------------------------------------------------------------------------------------------------------

/** What was seen, for the tests to judge. */
export async function story(where) {
  const warehouse = new Warehouse();
  const [clients, servers] = [[], []];
  for (const name of ['api-1', 'api-2']) {
    const client = await connectAs(where, 'http_api', name);
    const server = api(client, warehouse).listen(0, '127.0.0.1');
    await once(server, 'listening');
    clients.push(client);
    servers.push(server);
  }
  const [one, two] = servers.map((server) => server.address().port);
  const run = thisRun();
  const [ann, pat, bob] = [`ann-${run}`, `pro-pat-${run}`, `pro-bob-${run}`];

  console.log('ann is on the free tier, five a minute, wherever she asks:');
  const free = [];
  for (let turn = 0; turn < 7; turn += 1) {
    free.push(await ask(turn % 2 ? two : one, ann));
    console.log(`  ${show(free[turn])}`);
  }
  console.log('pat pays for the pro tier:');
  const pro = [];
  for (let turn = 0; turn < 7; turn += 1) pro.push(await ask(one, pat));
  console.log(`  ${pro.filter(({ status }) => status === 200).length} responses of ${pro.length} are 200`);

  console.log('bob orders, and the connection is bad:');
  const key = `"${run}"`;
  const withoutKey = await ask(one, bob, { body: 'slow tea' });
  console.log(`  without a key:           ${show(withoutKey)}`);
  const replying = ask(one, bob, { key, body: 'slow tea' });
  await warehouse.hasBegun;
  const whileRunning = await ask(two, bob, { key, body: 'slow tea' });
  console.log(`  again, while it is made: ${show(whileRunning)}`);
  warehouse.resume();
  const first = await replying;
  console.log(`  the first response:        ${show(first)}`);
  const again = await ask(two, bob, { key, body: 'slow tea' });
  console.log(`  again:                   ${show(again)}`);
  const otherBody = await ask(two, bob, { key, body: 'slow coffee' });
  console.log(`  coffee under that key:   ${show(otherBody)}`);
  console.log(`The warehouse shipped ${warehouse.orders}.`);
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
  for (const client of clients) await client.shutdown(5_000);
  return { free, pro, withoutKey, first, whileRunning, again, otherBody, shipped: warehouse.orders };
}

if (isProgram(import.meta.url)) await story(url());
