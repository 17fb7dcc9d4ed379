/** The middleware fits where the frameworks want it, and knows their requests. Only compiled. */
import express from 'express';
import fastify, { type FastifyRequest } from 'fastify';
import { createServer } from 'node:http';
import { connect, perMinute } from 'resil';
import { idempotency, rateLimit, runOf } from 'resil/express';
import * as plugins from 'resil/fastify';

const client = await connect('memory://');
const limiter = client.limiter('api', perMinute(5));

const app = express();
app.use(rateLimit({ tier: (request: express.Request) => ({ limiter, key: request.get('x-user') ?? '', cost: 2 }), headers: 'ietf', reset: 'at' }));
app.post('/orders', idempotency({ client, name: 'orders', tenant: async (request) => String(request.headers['x-user']), required: true, wait: 0, keep: '1d' }), (request, response) => {
  const fence: bigint | undefined = runOf(request)?.fence;
  response.json({ fenced: fence !== undefined });
});
app.use(rateLimit({ tier: () => null }));

const keys = idempotency({ client, name: 'plain', tenant: () => '' });
createServer((request, response) => keys(request, response, () => response.end()));

const service = fastify();
await service.register(plugins.rateLimit, { tier: (request: FastifyRequest) => ({ limiter, key: request.ip }) });
await service.register(plugins.idempotency, { client, name: 'orders', tenant: (request: FastifyRequest) => request.hostname, maxBody: 1_000 });
service.post('/', async (request) => ({ attempt: plugins.runOf(request)?.attempt }));

idempotency({ client, name: 'orders', tenant: () => '', keepResponses: (status) => status < 500 });
idempotency({ client, name: 'orders', tenant: () => '', keepResponses: [200, 201] });
// @ts-expect-error a response is kept or it is not
idempotency({ client, name: 'orders', tenant: () => '', keepResponses: () => 'yes' });
// @ts-expect-error who asks has a name
idempotency({ client, name: 'orders', tenant: () => undefined });
// @ts-expect-error a tier has a limiter
rateLimit({ tier: () => ({ key: 'x' }) });
// @ts-expect-error whose keys they are has to be said
idempotency({ client, name: 'orders' });
// @ts-expect-error the serializer is the middleware's own
idempotency({ client, name: 'orders', tenant: () => '', serializer: 'json' });
