/**
 * The same small service on Express, Fastify and Nest, for the tests of the middleware: what a request asks for is in its body.
 */
import { once } from 'node:events';
import { Readable } from 'node:stream';
import 'reflect-metadata';
import { All, Controller, Module, Req, Res } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import express from 'express';
import fastify from 'fastify';
import * as forExpress from 'resil/express';
import * as forFastify from 'resil/fastify';

/** What the handlers of both do. `work` gets the body as text, and returns `{status, headers, body}`. */
export const frameworks = {
  async express({ tier, limits, orders, work }) {
    const app = express();
    if (tier !== undefined) app.use(forExpress.rateLimit({ tier, ...limits }));
    if (orders !== undefined) app.use(forExpress.idempotency(orders));
    app.use(express.text({ type: '*/*', limit: '10mb' }));
    app.use((request, response, next) => {
      Promise.resolve(work(typeof request.body === 'string' ? request.body : '', forExpress.runOf(request), request)).then(async ({ status = 200, headers = {}, body, parts }) => {
        response.status(status).set(headers);
        if (parts === undefined) return response.send(body);
        for await (const part of parts) response.write(part);
        return response.end();
      }).catch(next);
    });
    app.use((error, request, response, next) => { response.status(500).send('broken'); });
    const server = app.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return { url: `http://127.0.0.1:${server.address().port}`, close: () => new Promise((done) => { server.closeAllConnections(); server.close(done); }) };
  },
  async fastify({ tier, limits, orders, work }) {
    const app = fastify({ bodyLimit: 10 << 20, forceCloseConnections: true });
    app.addContentTypeParser('*', { parseAs: 'string' }, (request, body, done) => done(null, body));
    app.addContentTypeParser('text/plain', { parseAs: 'string' }, (request, body, done) => done(null, body));
    if (tier !== undefined) await app.register(forFastify.rateLimit, { tier, ...limits });
    if (orders !== undefined) await app.register(forFastify.idempotency, orders);
    app.all('/*', async (request, reply) => {
      const { status = 200, headers = {}, body, parts } = await work(request.body ?? '', forFastify.runOf(request), request);
      return reply.code(status).headers(headers).send(parts === undefined ? body : Readable.from(parts));
    });
    app.setErrorHandler((error, request, reply) => reply.code(500).send('broken'));
    const url = await app.listen({ port: 0, host: '127.0.0.1' });
    return { url, close: () => app.close() };
  },
};

/** Nest without decorators, which plain JavaScript does not have. */
Object.assign(frameworks, {
  async nest({ tier, limits, orders, work }) {
    class Everything {
      async handle(request, response) {
        const { status = 200, headers = {}, body, parts } = await work(typeof request.body === 'string' ? request.body : '', forExpress.runOf(request), request);
        response.status(status).set(headers);
        if (parts === undefined) return response.send(body);
        for await (const part of parts) response.write(part);
        return response.end();
      }
    }
    Controller()(Everything);
    All('{*splat}')(Everything.prototype, 'handle', Object.getOwnPropertyDescriptor(Everything.prototype, 'handle'));
    Req()(Everything.prototype, 'handle', 0);
    Res()(Everything.prototype, 'handle', 1);
    class Service {}
    Module({ controllers: [Everything] })(Service);
    const app = await NestFactory.create(Service, { logger: false, bodyParser: false, forceCloseConnections: true });
    if (tier !== undefined) app.use(forExpress.rateLimit({ tier, ...limits }));
    if (orders !== undefined) app.use(forExpress.idempotency(orders));
    app.use(express.text({ type: '*/*', limit: '10mb' }));
    app.useGlobalFilters({
      catch(error, host) {
        const response = host.switchToHttp().getResponse();
        if (response.headersSent) response.destroy(error);
        else response.status(500).send('broken');
      },
    });
    await app.listen(0, '127.0.0.1');
    const server = app.getHttpServer();
    return { url: `http://127.0.0.1:${server.address().port}`, close: async () => { server.closeAllConnections(); await app.close(); } };
  },
});

/** A response, as tests look at it. */
export async function ask(url, { method = 'GET', headers = {}, body } = {}) {
  const response = await fetch(url, { method, headers, body, signal: AbortSignal.timeout(30_000) });
  return { status: response.status, headers: response.headers, body: await response.text() };
}

export const order = (url, key, body, more = {}) => ask(`${url}/orders`, {
  method: 'POST', body, headers: { 'content-type': 'text/plain', ...(key === undefined ? {} : { 'idempotency-key': key }), 'x-user': 'ann', ...more },
});
