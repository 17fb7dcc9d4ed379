'use strict';
/**
 * What an HTTP service says about limits, repeated requests and failures. For the middleware, and for middleware of your own.
 */
const native = require('./native.js');
const { ask, wrongType, ResilError } = require('./errors.js');
const given = require('./arguments.js');

function paired(flat) {
  const headers = {};
  for (let at = 0; at < flat.length; at += 2) headers[flat[at]] = flat[at + 1];
  return headers;
}

/** An error as a whole response: `{status, headers, body}`. One that is none of ours is a 500 without its words. */
function problem(error) {
  const parts = error instanceof ResilError
    ? { code: error.code, message: String(error.message), retryAfterMs: error.retryAfterMs }
    : { code: 'INTERNAL', message: '' };
  const { status, headers, body } = native.httpProblem(parts);
  return { status, headers: paired(headers), body: body.toString() };
}

/** A verdict as the native half wrote it. */
function numbersOf({ granted, capacity, remaining, retryAfterMs, resetAfterMs, limit, periodMs, windowMs, binding, tiers = [] }) {
  const numbers = [granted, capacity, remaining, retryAfterMs ?? -1, resetAfterMs, 0, limit, periodMs, windowMs];
  if (tiers.length === 0) return numbers.map(Number);
  const each = tiers.flatMap((tier) => [tier.limit, tier.periodMs, tier.capacity, tier.remaining, tier.retryAfterMs ?? -1, tier.resetAfterMs]);
  return [...numbers, binding, ...each].map(Number);
}

/** The headers of a verdict; of a limit with several tiers the one that binds is named. */
function rateLimitHeaders(policy, verdict, options) {
  given.text('policy', policy);
  if (typeof verdict?.remaining !== 'number' || typeof verdict.resetAfterMs !== 'number') throw wrongType('verdict', 'what a limiter said', verdict);
  const { limit = verdict.capacity, windowMs, reset = 'after' } = given.only('options', options, ['limit', 'windowMs', 'reset']);
  if (options?.limit === undefined && windowMs === undefined && typeof verdict.periodMs === 'number') {
    return paired(ask(() => native.httpLimited(policy, numbersOf(verdict), reset === 'at')));
  }
  given.finite('limit', limit);
  if (windowMs !== undefined) given.finite('windowMs', windowMs);
  const retryAfterMs = verdict.isGranted || verdict.retryAfterMs === null ? undefined : verdict.retryAfterMs;
  return paired(native.httpRateLimit(policy, limit, windowMs, verdict.remaining, retryAfterMs, verdict.resetAfterMs, reset === 'at'));
}

/** The key of the header `Idempotency-Key`; `undefined` if it is not there and need not be. */
function idempotencyKey(header, options) {
  const { required = false } = given.only('options', options, ['required']);
  return ask(() => native.httpIdempotencyKey(given.optionalText('header', header), required === true, undefined)) ?? undefined;
}

/** What makes a request this request: method, path and body. */
function requestFingerprint(method, path, body) {
  const bytes = typeof body === 'string' ? Buffer.from(body) : body ?? Buffer.alloc(0);
  if (!(bytes instanceof Uint8Array)) throw wrongType('body', 'text or bytes', body);
  return native.httpFingerprint(given.text('method', method), given.text('path', path), Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
}

module.exports = { problem, rateLimitHeaders, idempotencyKey, requestFingerprint };
