'use strict';
/**
 * Idempotency-Key, for any HTTP server: what is asked under a key is done once, and every duplicate gets the first response.
 *
 * A request that is the first of its key is *mine*: its response is held back until it is recorded, so that nobody hears what
 * is not; of one that comes in parts, its end is. A duplicate gets a response from here. What is kept, and how it is written, is decided by the SDK, so that
 * services in other languages give each other's responses.
 */
// As they were when this was loaded, whatever a test puts in their place.
const { setTimeout } = require('node:timers');
const native = require('../native.js');
const given = require('../arguments.js');
const { ask, wrongType, InvalidArgumentError, ResilError, ResultUnrecordedError } = require('../errors.js');
const { Client } = require('../client.js');
const { problemOf, ofTheService, report } = require('./answers.js');

const OPTIONS = ['client', 'name', 'tenant', 'required', 'methods', 'maxBody', 'maxResponse', 'afterHangUpMs', 'keepResponses'];
const METHODS = ['POST', 'PATCH'];
const BYTES_MAX = 1 << 20;
/** A handler whose client has left, and that has not answered for so long, is not waited for. */
const AFTER_HANG_UP_MS = 60_000;

/** A response that may be another the next time: the key is free again. */
class NotFinal extends Error {}

/** The runs of requests that are the first of their keys. */
const runs = new WeakMap();

/** What the handler of `request` works under: its fence, attempt and signal. `undefined` without a key. */
function runOf(request) {
  return runs.get(request);
}

/** The first request of its key. Exactly one of its ends is called. */
class Mine {
  constructor(once, run, work, outcome, giveUp) {
    this.run = run;
    this.work = work;
    this.outcome = outcome;
    this.giveUp = giveUp;
    this.afterHangUpMs = once.afterHangUpMs;
    this.maxResponse = once.maxResponse;
    this.keeps = once.keeps;
    this.isOver = false;
  }

  /** If the client leaves and the handler never responds, the lease is left to lapse: the next one gets attempt 2. */
  watch(response) {
    response.once('close', () => {
      if (!this.isOver) setTimeout(() => this.isOver || this.giveUp(), this.afterHangUpMs).unref();
    });
  }

  recording() {
    return new Recording(this);
  }

  /** The response is whole, or on its way. What to say in its place, if it could not be recorded that it is the response. */
  async end(status, bytes) {
    this.isOver = true;
    let isKept;
    try {
      isKept = await this.keeps(status);
      if (isKept) this.work.done(bytes());
      else this.work.fail(new NotFinal());
    } catch (error) {
      // A fault of the service, which has nobody else to hear of it.
      report('keepResponses', error);
      this.work.fail(new NotFinal());
      await this.outcome().catch(() => {});
      return problemOf(new Error('keepResponses failed'));
    }
    try {
      await this.outcome();
      return undefined;
    } catch (error) {
      if (!(error instanceof ResilError) || !isKept) return undefined;
      return problemOf(error);
    }
  }
}

/** A response as it is given, with as much of it as is kept. */
class Recording {
  constructor(mine) {
    this.mine = mine;
    this.status = 200;
    this.headers = [];
    this.chunks = [];
    this.left = mine.maxResponse;
  }

  head(status, headers) {
    this.status = status;
    this.headers = headers;
    // As it is recorded, without a body.
    this.left -= native.httpRecord(status, headers, Buffer.alloc(0)).length;
  }

  take(chunk) {
    this.left -= chunk.length;
    if (this.left < 0) this.chunks = [];
    else this.chunks.push(chunk);
  }

  /** It broke off: the key is free again. */
  async fail() {
    this.mine.isOver = true;
    this.mine.work.fail(new NotFinal());
    await this.mine.outcome().catch(() => {});
  }

  /** Of a response that is too large to be kept duplicates learn that it is done. */
  end() {
    const bytes = () => (this.left < 0 ? Buffer.alloc(0) : native.httpRecord(this.status, this.headers, Buffer.concat(this.chunks)));
    return this.mine.end(this.status, bytes);
  }
}

/** Which responses are kept: a function of the status, a list of statuses, or all that will not be others the next time. */
function keepsOf(said) {
  if (said === undefined) return (status) => native.httpIsFinal(status);
  if (typeof said !== 'function' && typeof said?.[Symbol.iterator] === 'function' && typeof said !== 'string') {
    const statuses = new Set(said);
    for (const status of statuses) given.whole('keepResponses', status, 100);
    return (status) => statuses.has(status);
  }
  given.func('keepResponses', said);
  return async (status) => {
    const keeps = await said(status);
    if (typeof keeps !== 'boolean') throw wrongType('what keepResponses returns', 'a boolean', keeps);
    return keeps;
  };
}

/** The header as it came; a list if it came more than once, which Node would make one text of. */
function keyHeaderOf(request) {
  const header = request.headers['idempotency-key'];
  const raw = request.rawHeaders ?? request.raw?.rawHeaders ?? [];
  const all = raw.filter((name, at) => at % 2 === 0 && name.toLowerCase() === 'idempotency-key');
  return all.length > 1 ? all : header;
}

class Once {
  constructor(options) {
    const all = given.options('options', options);
    const said = Object.fromEntries(OPTIONS.map((name) => [name, all[name]]));
    const settings = Object.fromEntries(Object.entries(all).filter(([name]) => !OPTIONS.includes(name)));
    const { client, name, tenant, required = false, methods = METHODS } = said;
    const { maxBody = BYTES_MAX, maxResponse = BYTES_MAX, afterHangUpMs = AFTER_HANG_UP_MS } = said;
    if (!(client instanceof Client)) throw wrongType('client', 'what connect() gives', client);
    given.func('tenant', tenant);
    if (typeof required !== 'function' && typeof required !== 'boolean') throw wrongType('required', 'a boolean or a function', required);
    if (!Array.isArray(methods) || !methods.every((method) => typeof method === 'string')) throw wrongType('methods', 'a list of methods', methods);
    this.tenant = tenant;
    this.required = required;
    this.methods = new Set(methods.map((method) => method.toUpperCase()));
    this.maxBody = given.whole('maxBody', maxBody);
    this.maxResponse = given.whole('maxResponse', maxResponse);
    this.afterHangUpMs = given.whole('afterHangUpMs', afterHangUpMs);
    this.keeps = keepsOf(said.keepResponses);
    for (const other of ['serializer', 'remember']) if (other in settings) throw wrongType(`options.${other}`, 'left out: responses are recorded as they are', settings[other]);
    this.idempotent = given.reading(OPTIONS, () => client.idempotent(name, { ...settings, serializer: 'bytes' }));
  }

  /** Whether this is none of ours: another method, or no key where none is needed. */
  async passes(request, method, header) {
    if (!this.methods.has(method)) return true;
    return header === undefined && !(await this.isRequired(request));
  }

  async isRequired(request) {
    if (typeof this.required !== 'function') return this.required;
    return ofTheService('required', async () => (await this.required(request)) === true);
  }

  /** The key of this request. Throws an error of ours if there is none that can be used. */
  async keyOf(request, header) {
    const tenant = await ofTheService('tenant', async () => given.text('tenant', await this.tenant(request)));
    const required = await this.isRequired(request);
    if (Array.isArray(header)) throw new InvalidArgumentError('the header Idempotency-Key was sent more than once');
    return ask(() => native.httpIdempotencyKey(header, required, tenant));
  }

  tooLarge() {
    return native.httpBodyTooLarge(this.maxBody);
  }

  /** `{mine}` for the first, `{whole}` for everybody else. */
  begin(request, key, method, target, body) {
    const print = native.httpFingerprint(method, target, body);
    const leaving = new AbortController();
    return new Promise((resolve) => {
      const work = (run) => new Promise((done, fail) => {
        runs.set(request, run);
        resolve({ mine: new Mine(this, run, { done, fail }, () => outcome, () => leaving.abort()) });
      });
      const outcome = this.idempotent.run(key, print, work, { signal: leaving.signal });
      // Of one that is mine this comes too late to be heard here: it was resolved above.
      const response = outcome.then(
        ({ value }) => native.httpReplay(value),
        (error) => (error instanceof ResultUnrecordedError ? native.httpReplay(undefined) : problemOf(error)),
      );
      response.catch(problemOf).then((whole) => resolve({ whole }));
    });
  }
}

module.exports = { Once, keyHeaderOf, runOf };
