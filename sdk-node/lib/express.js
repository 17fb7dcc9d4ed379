'use strict';
/**
 * Middleware for Express, and for whatever takes `(request, response, next)` on Node's own HTTP server.
 */
const { asError, ResilError } = require('./errors.js');
const { limits } = require('./middleware/limits.js');
const { Once, keyHeaderOf, runOf } = require('./middleware/once.js');
const { bodyOf, discard, HungUp } = require('./middleware/body.js');
const { problemOf, headersOf, flat, report, OF_THE_BODY } = require('./middleware/answers.js');

/** What ends the recording of a request whose handler fails. */
const failing = new WeakMap();
/** Apps whose errors are heard. */
const heard = new WeakSet();

/**
 * Express tells middleware nothing of an error in a later handler; of a response that has begun it only cuts the connection, as a client
 * would. So the first request of an app puts an error handler behind all of its others, which hears of the error and passes it on.
 */
function hear(app) {
  if (typeof app?.use !== 'function' || heard.has(app)) return;
  heard.add(app);
  // Four arguments: that is how Express knows it by.
  app.use((error, request, response, next) => {
    failing.get(request)?.();
    next(error);
  });
}

function send(response, { status, headers, body }) {
  for (const name of OF_THE_BODY) response.removeHeader(name);
  response.statusCode = status;
  // Node does not say the length of a response of which it was once removed: it would end only with the connection.
  if (status !== 204 && status !== 304) response.setHeader('content-length', body.length);
  for (const [name, value] of headersOf(headers)) response.setHeader(name, value);
  response.end(body);
}

/**
 * Runs a middleware: what Resil says is a response, what the user's functions throw goes to `next`. A `next` that throws, as one of the
 * service's own may, ends this request and no other.
 */
function handling(handle) {
  return (request, response, next) => {
    const handled = handle(request, response).then(
      (goesOn) => { if (goesOn) next(); },
      (error) => {
        if (error instanceof HungUp) return;
        if (error instanceof ResilError) send(response, problemOf(error));
        else next(asError('the middleware', error));
      },
    );
    handled.catch((error) => {
      report('next', error);
      if (response.headersSent) response.destroy();
      else send(response, problemOf(error));
    }).catch((error) => report('the response', error));
  };
}

function rateLimit(options) {
  const check = limits(options);
  return handling(async (request, response) => {
    const limited = await check(request);
    if (limited === undefined) return true;
    for (const [name, value] of headersOf(limited.headers)) response.setHeader(name, value);
    // A client that hangs up before its response gets nothing back: a limit could be evaded by that.
    if (limited.settle) response.once('close', () => { if (response.headersSent) limited.settle(response.statusCode); });
    // Nobody hears `null` either.
    if (!limited.refusal) return true;
    send(response, limited.refusal);
    return false;
  });
}

function idempotency(options) {
  const once = new Once(options);
  return handling(async (request, response) => {
    const header = keyHeaderOf(request);
    if (await once.passes(request, request.method, header)) return true;
    const key = await once.keyOf(request, header);
    const body = await bodyOf(request, once.maxBody);
    if (body === undefined) {
      discard(request);
      send(response, once.tooLarge());
      return false;
    }
    const { mine, whole } = await once.begin(request, key, request.method, request.originalUrl ?? request.url, body);
    if (whole !== undefined) {
      send(response, whole);
      return false;
    }
    mine.watch(response);
    hear(request.app);
    failing.set(request, record(response, mine));
    return true;
  });
}

const TAKEN_OVER = ['writeHead', 'flushHeaders', 'write', 'end', 'destroy'];

/**
 * Records the response while it is given. One that is made at once is held back until it is recorded, and replaced if it cannot be. One that comes
 * in parts goes out as it comes; its end is held back, and never comes if it could not be recorded. If the handler fails in the middle, the
 * key is free at once. The function that is returned says so; so does `response.destroy(error)` (`stream.pipeline` calls it).
 */
function record(response, mine) {
  const own = TAKEN_OVER.map((name) => [name, Object.getOwnPropertyDescriptor(response, name)]);
  const { write, end, destroy } = response;
  const recording = mine.recording();
  let isStreamed = false;
  let isEnded = false;

  const letThrough = (names) => {
    for (const [name, before] of own) {
      if (!names.includes(name)) continue;
      if (before === undefined) delete response[name];
      else Object.defineProperty(response, name, before);
    }
  };
  /** From here on the head is said. */
  const stream = () => {
    if (isStreamed) return;
    isStreamed = true;
    recording.head(response.statusCode, flat(response.getHeaders()));
    letThrough(['writeHead', 'flushHeaders']);
  };
  const bytesOf = (chunk, encoding) => {
    if (chunk === undefined || chunk === null || typeof chunk === 'function') return undefined;
    return typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8') : Buffer.from(chunk);
  };

  /** The handler failed. A response that has not begun is another one then, and is recorded as that. */
  const fail = () => {
    if (!isStreamed || isEnded) return;
    isEnded = true;
    void recording.fail();
  };
  response.destroy = (error) => {
    // After the client has left, writing to it is an error, too.
    if (error && response.socket !== null && !response.socket.destroyed && !response.socket.readableEnded) fail();
    return destroy.call(response, error);
  };
  response.writeHead = (status, ...rest) => {
    response.statusCode = status;
    if (typeof rest[0] === 'string') response.statusMessage = rest.shift();
    const [headers] = rest;
    const pairs = Array.isArray(headers) ? headersOf(headers.flat()) : Object.entries(headers ?? {});
    for (const [name, value] of pairs) if (value !== undefined) response.setHeader(name, value);
    return response;
  };
  response.flushHeaders = () => {
    stream();
    response.flushHeaders();
  };
  response.write = (chunk, encoding, callback) => {
    stream();
    const bytes = bytesOf(chunk, encoding);
    if (bytes !== undefined) recording.take(bytes);
    return write.call(response, chunk, encoding, callback);
  };
  response.end = (chunk, encoding, callback) => {
    if (isEnded) return response;
    isEnded = true;
    const listener = [chunk, encoding, callback].find((argument) => typeof argument === 'function');
    if (listener !== undefined) response.once('finish', listener);
    const last = bytesOf(chunk, encoding);
    if (last !== undefined) recording.take(last);
    if (!isStreamed) recording.head(response.statusCode, flat(response.getHeaders()));
    recording.end().then((instead) => {
      letThrough(TAKEN_OVER);
      if (instead === undefined) end.call(response, last);
      else if (isStreamed) response.destroy();
      else send(response, instead);
    }).catch((error) => {
      report('the response', error);
      destroy.call(response);
    });
    return response;
  };
  return fail;
}

module.exports = { rateLimit, idempotency, runOf };
