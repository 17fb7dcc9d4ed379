'use strict';
/**
 * Idempotency-Key, for any HTTP server: what is asked under a key is done once, and every duplicate gets the first answer.
 *
 * A request that is the first of its key is *mine*: its answer is held back until it is recorded, so that nobody hears what
 * is not. Whoever comes second gets an answer from here. What is kept, and how it is written, is decided by the SDK, so that
 * services in other languages give each other's answers.
 */
const native = require('../native.js');
const given = require('../arguments.js');
const { ask, wrongType, ResilError } = require('../errors.js');
const { Client } = require('../client.js');
const { answerOf, ofTheService } = require('./answers.js');

const OPTIONS = ['client', 'name', 'tenant', 'required', 'methods', 'maxBody', 'maxAnswer', 'afterHangUpMs'];
const METHODS = ['POST', 'PATCH'];
const BYTES_MAX = 1 << 20;
/** A handler whose client has left, and that has not answered for so long, is not waited for. */
const AFTER_HANG_UP_MS = 60_000;

/** An answer that may be another the next time: the key is free again. */
class NotFinal extends Error {}

/** The runs of requests that are the first of their keys. */
const runs = new WeakMap();

/** What the handler of `request` works under: its fence, attempt and signal. `undefined` without a key. */
function runOf(request) {
  return runs.get(request);
}

/** The first request of its key. Exactly one of its ends is called. */
class Mine {
  constructor(run, work, outcome, giveUp, afterHangUpMs) {
    this.run = run;
    this.work = work;
    this.outcome = outcome;
    this.giveUp = giveUp;
    this.afterHangUpMs = afterHangUpMs;
    this.isOver = false;
  }

  /** If the client leaves and the handler never answers, the lease is left to lapse: the next one is told attempt 2. */
  watch(response) {
    response.once('close', () => {
      if (!this.isOver) setTimeout(() => this.isOver || this.giveUp(), this.afterHangUpMs).unref();
    });
  }

  /** The answer is whole. What to say in its place, if it could not be recorded that it is the answer. */
  async answered(status, headers, body) {
    return this.end(status, () => native.httpRecord(status, headers, body));
  }

  /** The answer is on its way already, and too large to be kept: duplicates learn that it is done. */
  async passedOn(status) {
    return this.end(status, () => Buffer.alloc(0));
  }

  async end(status, record) {
    this.isOver = true;
    const isFinal = native.httpIsFinal(status);
    if (isFinal) this.work.done(record());
    else this.work.fail(new NotFinal());
    try {
      await this.outcome();
      return undefined;
    } catch (error) {
      if (!(error instanceof ResilError) || !isFinal) return undefined;
      return answerOf(error);
    }
  }
}

class Once {
  constructor(options) {
    const all = given.options('options', options);
    const said = Object.fromEntries(OPTIONS.map((name) => [name, all[name]]));
    const settings = Object.fromEntries(Object.entries(all).filter(([name]) => !OPTIONS.includes(name)));
    const { client, name, tenant, required = false, methods = METHODS } = said;
    const { maxBody = BYTES_MAX, maxAnswer = BYTES_MAX, afterHangUpMs = AFTER_HANG_UP_MS } = said;
    if (!(client instanceof Client)) throw wrongType('client', 'what connect() gives', client);
    given.func('tenant', tenant);
    if (typeof required !== 'function' && typeof required !== 'boolean') throw wrongType('required', 'a boolean or a function', required);
    if (!Array.isArray(methods) || !methods.every((method) => typeof method === 'string')) throw wrongType('methods', 'a list of methods', methods);
    this.tenant = tenant;
    this.required = required;
    this.methods = new Set(methods.map((method) => method.toUpperCase()));
    this.maxBody = given.whole('maxBody', maxBody);
    this.maxAnswer = given.whole('maxAnswer', maxAnswer);
    this.afterHangUpMs = given.whole('afterHangUpMs', afterHangUpMs);
    this.idempotent = client.idempotent(name, { ...settings, codec: 'bytes' });
  }

  /** Whether this is none of ours: another method, or no key where none is needed. */
  async passes(request, method, header) {
    if (!this.methods.has(method)) return true;
    return header === undefined && !(await this.isRequired(request));
  }

  async isRequired(request) {
    return typeof this.required === 'function' ? (await this.required(request)) === true : this.required;
  }

  /** The key of this request. Throws an error of ours if there is none that can be used. */
  async keyOf(request, header) {
    const tenant = await ofTheService(async () => given.text('tenant', await this.tenant(request)));
    const required = await this.isRequired(request);
    return ask(() => native.httpKeyOfTenant(header, required, tenant));
  }

  tooLarge() {
    return native.httpBodyTooLarge(this.maxBody);
  }

  /** `{mine}` for the first, `{answer}` for everybody else. */
  begin(request, key, method, target, body) {
    const print = native.httpFingerprintOf(method, target, body);
    const leaving = new AbortController();
    return new Promise((resolve) => {
      const work = (run) => new Promise((done, fail) => {
        runs.set(request, run);
        resolve({ mine: new Mine(run, { done, fail }, () => outcome, () => leaving.abort(), this.afterHangUpMs) });
      });
      const outcome = this.idempotent.run(key, print, work, { signal: leaving.signal });
      outcome.then(
        ({ value }) => resolve({ answer: native.httpReplay(value) }),
        // Of one that is mine this comes too late to be heard here: it was resolved above.
        (error) => resolve({ answer: answerOf(error) }),
      );
    });
  }
}

module.exports = { Once, runOf };
