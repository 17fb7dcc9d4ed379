'use strict';
/**
 * Plugins for Fastify: `app.register(rateLimit, { tier })`, `app.register(idempotency, { client, name, tenant })`.
 */
const { Readable } = require('node:stream');
const { asError, ResilError } = require('./errors.js');
const { limits } = require('./middleware/limits.js');
const { Once, keyHeaderOf, runOf } = require('./middleware/once.js');
const { discard } = require('./middleware/body.js');
const { problemOf, headersOf, flat, OF_THE_BODY } = require('./middleware/answers.js');

/** A plugin whose hooks apply to the app that registers it, not only inside of the plugin. */
function plugin(name, register) {
  const made = async (fastify, options) => register(fastify, options);
  made[Symbol.for('skip-override')] = true;
  made[Symbol.for('fastify.display-name')] = name;
  return made;
}

function tell(reply, { status, headers }) {
  for (const name of OF_THE_BODY) reply.removeHeader(name);
  reply.code(status);
  for (const [name, value] of headersOf(headers)) reply.header(name, value);
}

/** Responses that say nothing of their type: Fastify would. */
const untyped = new WeakSet();

function send(reply, whole) {
  tell(reply, whole);
  if (!reply.hasHeader('content-type')) untyped.add(reply);
  reply.send(whole.body);
  return reply;
}

/** What Resil says is a response; what the user's functions throw is for Fastify. */
async function orProblem(reply, run) {
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof ResilError)) throw asError('the plugin', error);
    return send(reply, problemOf(error));
  }
}

const rateLimit = plugin('resil-rate-limit', (fastify, options) => {
  const check = limits(options);
  fastify.addHook('onRequest', (request, reply) => orProblem(reply, async () => {
    const limited = await check(request);
    if (limited === undefined) return undefined;
    for (const [name, value] of headersOf(limited.headers)) reply.header(name, value);
    // A client that hangs up before its response gets nothing back: a limit could be evaded by that.
    if (limited.settle) reply.raw.once('close', () => { if (reply.raw.headersSent) limited.settle(reply.raw.statusCode); });
    return limited.refusal ? send(reply, limited.refusal) : undefined;
  }));
});

const idempotency = plugin('resil-idempotency', (fastify, options) => {
  const once = new Once(options);
  const bodies = new WeakMap();
  const mines = new WeakMap();

  // The bytes as they came; the parsers get them again.
  fastify.addHook('preParsing', async (request, reply, payload) => {
    if (keyHeaderOf(request.raw) === undefined || !once.methods.has(request.method)) return payload;
    const chunks = [];
    let length = 0;
    for await (const chunk of payload.iterator({ destroyOnReturn: false })) {
      chunks.push(Buffer.from(chunk));
      length += chunk.length;
      if (length > once.maxBody) break;
    }
    if (length > once.maxBody) {
      discard(request.raw, payload);
      return send(reply, once.tooLarge());
    }
    const body = Buffer.concat(chunks);
    bodies.set(request, body);
    const again = Readable.from(body.length > 0 ? [body] : [], { objectMode: false });
    again.receivedEncodedLength = body.length;
    return again;
  });

  fastify.addHook('preHandler', (request, reply) => orProblem(reply, async () => {
    const header = keyHeaderOf(request.raw);
    if (await once.passes(request, request.method, header)) return undefined;
    const key = await once.keyOf(request, header);
    const { mine, whole } = await once.begin(request, key, request.method, request.originalUrl, bodies.get(request) ?? Buffer.alloc(0));
    if (whole !== undefined) return send(reply, whole);
    mine.watch(reply.raw);
    mines.set(request, mine);
    return undefined;
  }));

  fastify.addHook('onSend', async (request, reply, payload) => {
    if (untyped.has(reply)) reply.removeHeader('content-type');
    const mine = mines.get(request);
    if (mine === undefined) return payload;
    mines.delete(request);
    const recording = mine.recording();
    recording.head(reply.statusCode, flat(reply.getHeaders()));
    if (isStream(payload)) return Readable.from(recorded(payload, recording), { objectMode: false });
    // Bytes: of a text Node would write the headers in the encoding of the text.
    const body = payload === null || payload === undefined ? payload : Buffer.from(payload);
    if (body) recording.take(body);
    const instead = await recording.end();
    if (instead === undefined) return body;
    tell(reply, instead);
    return instead.body;
  });
});

function isStream(payload) {
  return payload !== null && typeof payload === 'object' && !(payload instanceof Uint8Array);
}

/** A response in parts, as it comes. It ends when it is recorded; if it cannot be, it breaks off. */
async function* recorded(payload, recording) {
  const source = (typeof payload[Symbol.asyncIterator] === 'function' ? payload : Readable.from(payload))[Symbol.asyncIterator]();
  let isRead = false;
  const next = async () => {
    try {
      const { done, value } = await source.next();
      isRead = done === true;
      if (isRead) return undefined;
      const chunk = Buffer.from(value);
      recording.take(chunk);
      return chunk;
    } catch (error) {
      isRead = true;
      await recording.fail();
      throw error;
    }
  };
  try {
    for (let chunk = await next(); chunk !== undefined; chunk = await next()) yield chunk;
    if ((await recording.end()) !== undefined) throw new Error('the response could not be recorded');
  } finally {
    // The client has left: the work is not cut in half because of that.
    if (!isRead) void (async () => { while ((await next()) !== undefined); await recording.end(); })().catch(() => {});
  }
}

module.exports = { rateLimit, idempotency, runOf };
