'use strict';
/**
 * The body of a request as it came, read before anybody else reads it, and put back for them.
 */
// As they were when this was loaded, whatever a test puts in their place.
const { setTimeout, clearTimeout } = require('node:timers');

/** The client left before it had said all. */
class HungUp extends Error {}

/** Of a request that a parser has read already: as near to what came as can be had. */
function readBefore(request) {
  const known = request.rawBody ?? request.body;
  if (known === undefined || known === null) return Buffer.alloc(0);
  if (known instanceof Uint8Array) return Buffer.from(known);
  return Buffer.from(typeof known === 'string' ? known : JSON.stringify(known) ?? '');
}

/** The body; `undefined` if it has more than `bytesMax` bytes. The next reader of the request finds it untouched. */
function bodyOf(request, bytesMax) {
  if (Number(request.headers['content-length'] ?? 0) > bytesMax) return Promise.resolve(undefined);
  if (request.readableEnded || request.readableDidRead) {
    const body = readBefore(request);
    return Promise.resolve(body.length > bytesMax ? undefined : body);
  }
  return new Promise((resolve, reject) => {
    const chunks = [];
    let length = 0;
    const over = (end, value) => {
      request.off('readable', onReadable);
      request.off('end', onReadable);
      request.off('close', onClose);
      request.off('error', onClose);
      end(value);
    };
    const onClose = () => over(reject, new HungUp('the client hung up'));
    const onReadable = () => {
      for (let chunk = request.read(); chunk !== null; chunk = request.read()) {
        chunks.push(chunk);
        length += chunk.length;
        if (length > bytesMax) return over(resolve, undefined);
      }
      if (!request.complete) return;
      const body = Buffer.concat(chunks);
      // Before the stream says that it has ended, which it does not do while there is something in it.
      if (body.length > 0) request.unshift(body);
      over(resolve, body);
    };
    request.on('readable', onReadable);
    // Of a request without a body nothing becomes readable: it only ends.
    request.on('end', onReadable);
    request.on('close', onClose);
    request.on('error', onClose);
  });
}

/** For how long what is left of a refused body is read; a client that sends longer is cut off. */
const DISCARD_MS = 5_000;

/** Reads what is left of a body that nobody wants: before that its connection is of no use to the next request. */
function discard(request, body = request) {
  const cut = setTimeout(() => request.destroy(), DISCARD_MS);
  cut.unref();
  request.once('close', () => clearTimeout(cut));
  request.once('end', () => clearTimeout(cut));
  request.on('error', () => {});
  // A listener, because a stream that was iterated over does not resume at once.
  body.on('data', () => {});
  body.resume();
}

module.exports = { bodyOf, discard, HungUp };
