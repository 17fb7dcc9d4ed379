/** Errors: one family, the same in every language. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';

import * as resil from 'resil';

const table = JSON.parse(readFileSync(new URL('../../commands/errors.json', import.meta.url), 'utf8'));

test('every code has its class, status and retry advice', () => {
  for (const { code, http, retryable } of table) {
    const name = `${code.split('_').map((word) => word[0] + word.slice(1).toLowerCase()).join('')}Error`;
    const Class = resil[name];
    assert.equal(typeof Class, 'function', name);
    const error = new Class('words');
    assert.equal(error.name, name);
    assert.equal(error.code, code);
    assert.equal(error.retryable, retryable, code);
    assert.equal(error.httpStatus, http, code);
    assert.ok(error instanceof resil.ResilError && error instanceof Error, name);
  }
  const classes = Object.keys(resil).filter((name) => name.endsWith('Error') && !['ResilError', 'WorkError'].includes(name));
  assert.equal(classes.length, table.length, 'and there is no other class');
});

test('an error is an instance of its own class only', async () => {
  const error = await resil.timeout(1).call(() => new Promise(() => {})).catch((caught) => caught);
  assert.ok(error instanceof resil.TimeoutError);
  assert.ok(!(error instanceof resil.CircuitOpenError));
  assert.ok(!(new Error('x') instanceof resil.ResilError));
  assert.ok(!({ code: 'TIMEOUT' } instanceof resil.ResilError));
});

test('wrong arguments are a TypeError or a RangeError too', () => {
  assert.ok(new resil.InvalidArgumentError('x') instanceof TypeError);
  assert.ok(new resil.InvalidPolicyError('x') instanceof RangeError);
});

test('require and import give the same package', () => {
  const required = createRequire(import.meta.url)('resil');
  assert.deepEqual(Object.keys(resil).filter((name) => name !== 'default').sort(), Object.keys(required).sort());
  for (const [name, value] of Object.entries(required)) assert.equal(resil[name], value, name);
});

test('an error becomes an HTTP reply that names nobody', () => {
  const error = new resil.RateLimitExceededError('the rate limit user:ann is exceeded', { retryAfterMs: 1_500, resource: 'user:ann' });
  const { status, headers, body } = resil.problem(error);
  assert.equal(status, 429);
  assert.equal(headers['retry-after'], '2');
  assert.equal(JSON.parse(body).code, 'RATE_LIMIT_EXCEEDED');
  assert.ok(!body.includes('user:ann'));
  assert.equal(resil.problem(new Error('a secret')).status, 500);
  assert.ok(!resil.problem(new Error('a secret')).body.includes('secret'));
});

test('headers of verdicts and repeats follow the standards', async () => {
  const client = await resil.connect('memory://');
  const limiter = client.limiter('api', resil.perMinute(1));
  assert.equal(resil.rateLimitHeaders('api', await limiter.check('ann'))['retry-after'], undefined);
  const headers = resil.rateLimitHeaders('api', await limiter.check('ann'), { limit: 1, windowMs: 60_000 });
  assert.equal(headers['retry-after'], '60');
  assert.equal(headers['ratelimit-policy'], '"api";q=1;w=60');
  assert.equal(resil.idempotencyKey('"8e03"'), '8e03');
  assert.equal(resil.idempotencyKey(undefined), undefined);
  assert.throws(() => resil.idempotencyKey(undefined, { required: true }), resil.InvalidArgumentError);
  assert.notEqual(resil.requestFingerprint('POST', '/a', 'x'), resil.requestFingerprint('POST', '/b', 'x'));
});
