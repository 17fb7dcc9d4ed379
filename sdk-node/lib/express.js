'use strict';
/**
 * Middleware for Express, and for whatever takes `(request, response, next)` on Node's own HTTP server.
 */
const { ResilError } = require('./errors.js');
const { limits } = require('./middleware/limits.js');
const { Once, runOf } = require('./middleware/once.js');
const { bodyOf, HungUp } = require('./middleware/body.js');
const { answerOf, headersOf, flat, OF_THE_BODY } = require('./middleware/answers.js');

function send(response, { status, headers, body }) {
  for (const name of OF_THE_BODY) response.removeHeader(name);
  response.statusCode = status;
  // Node does not say the length of an answer of which it was once removed: it would end only with the connection.
  if (status !== 204 && status !== 304) response.setHeader('content-length', body.length);
  for (const [name, value] of headersOf(headers)) response.setHeader(name, value);
  response.end(body);
}

/** Runs a middleware: what Resil says is an answer, what the user's functions throw goes to `next`. */
function handling(handle) {
  return (request, response, next) => {
    handle(request, response).then(
      (goesOn) => { if (goesOn) next(); },
      (error) => {
        if (error instanceof HungUp) return;
        if (error instanceof ResilError) send(response, answerOf(error));
        else next(error);
      },
    );
  };
}

function rateLimit(options) {
  const check = limits(options);
  return handling(async (request, response) => {
    const limited = await check(request);
    if (limited === undefined) return true;
    for (const [name, value] of headersOf(limited.headers)) response.setHeader(name, value);
    // Nobody hears `null` either.
    if (!limited.refusal) return true;
    send(response, limited.refusal);
    return false;
  });
}

function idempotency(options) {
  const once = new Once(options);
  return handling(async (request, response) => {
    const header = request.headers['idempotency-key'];
    if (await once.passes(request, request.method, header)) return true;
    const key = await once.keyOf(request, header);
    const body = await bodyOf(request, once.maxBody);
    if (body === undefined) {
      send(response, once.tooLarge());
      return false;
    }
    const { mine, answer } = await once.begin(request, key, request.method, request.originalUrl ?? request.url, body);
    if (answer !== undefined) {
      send(response, answer);
      return false;
    }
    mine.watch(response);
    holdBack(response, mine, once.maxAnswer);
    return true;
  });
}

/** Holds the answer back until it is whole and recorded. One that grows too large is let through from there on. */
function holdBack(response, mine, bytesMax) {
  const own = ['writeHead', 'flushHeaders', 'write', 'end'].map((name) => [name, Object.getOwnPropertyDescriptor(response, name)]);
  const chunks = [];
  let length = 0;
  let isEnded = false;

  const letThrough = () => {
    for (const [name, before] of own) {
      if (before === undefined) delete response[name];
      else Object.defineProperty(response, name, before);
    }
  };
  const take = (chunk, encoding) => {
    if (chunk === undefined || chunk === null) return;
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8') : Buffer.from(chunk);
    chunks.push(bytes);
    length += bytes.length;
  };
  const passOn = () => {
    letThrough();
    const written = response.write(Buffer.concat(chunks));
    mine.passedOn(response.statusCode);
    return written;
  };
  const said = (callback) => { if (typeof callback === 'function') response.once('finish', callback); };

  response.writeHead = (status, ...rest) => {
    response.statusCode = status;
    if (typeof rest[0] === 'string') response.statusMessage = rest.shift();
    const [headers] = rest;
    const pairs = Array.isArray(headers) ? headersOf(headers.flat()) : Object.entries(headers ?? {});
    for (const [name, value] of pairs) if (value !== undefined) response.setHeader(name, value);
    return response;
  };
  response.flushHeaders = () => {};
  response.write = (chunk, encoding, callback) => {
    take(chunk, encoding);
    const told = typeof encoding === 'function' ? encoding : callback;
    if (typeof told === 'function') process.nextTick(told);
    return length > bytesMax ? passOn() : true;
  };
  response.end = (chunk, encoding, callback) => {
    if (isEnded) return response;
    isEnded = true;
    said([chunk, encoding, callback].find((argument) => typeof argument === 'function'));
    if (typeof chunk !== 'function') take(chunk, encoding);
    if (length > bytesMax) {
      passOn();
      response.end();
      return response;
    }
    const body = Buffer.concat(chunks);
    mine.answered(response.statusCode, flat(response.getHeaders()), body).then((instead) => {
      letThrough();
      if (instead === undefined) response.end(body);
      else send(response, instead);
    });
    return response;
  };
}

module.exports = { rateLimit, idempotency, runOf };
