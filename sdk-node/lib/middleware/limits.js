'use strict';
/**
 * Limits by tier, for any HTTP server: a request is checked, and what that means for its response is said by the native half.
 */
const native = require('../native.js');
const given = require('../arguments.js');
const { wrongType, ResilError } = require('../errors.js');
const { run } = require('../calls.js');
const { Limiter } = require('../limiter.js');
const { ofTheService, report } = require('./answers.js');

const OPTIONS = ['tier', 'headers', 'reset', 'refund'];
const TIER = ['limiter', 'key', 'cost', 'name'];

/** Which statuses give back what they cost. */
function refundsOf(said) {
  if (said === undefined) return undefined;
  if (typeof said !== 'function' && typeof said?.[Symbol.iterator] === 'function' && typeof said !== 'string') {
    const statuses = new Set(said);
    for (const status of statuses) given.whole('refund', status, 100);
    return (status) => statuses.has(status);
  }
  return given.func('refund', said);
}

/**
 * A function of a request: `undefined` if it is not limited, else `{headers, refusal, settle}`. `settle` gets the response's status, if
 * that matters.
 */
function limits(options) {
  const { tier, headers = 'all', reset = 'after', refund } = given.only('options', options, OPTIONS);
  const refunds = refundsOf(refund);
  given.func('tier', tier);
  given.text('headers', headers);
  if (reset !== 'after' && reset !== 'at') throw wrongType('reset', "'after' or 'at'", reset);
  return (request) => ofTheService('tier', async () => {
    const chosen = await tier(request);
    if (chosen === undefined || chosen === null) return undefined;
    const { limiter, key, cost = 1, name } = given.only('tier', chosen, TIER);
    if (!(limiter instanceof Limiter)) throw wrongType('tier.limiter', 'a limiter', limiter);
    given.text('tier.key', key);
    given.integer('tier.cost', cost);
    const policy = given.optionalText('tier.name', name) ?? limiter.name;
    const limited = await run(undefined, () => native.httpCheck(limiter._inner, key, cost, policy, headers, reset === 'at'));
    if (refunds === undefined || limited.refusal) return limited;
    const settle = (status) => ofTheService('refund', async () => {
      if (await refunds(status)) await limiter.refund(key, cost);
    }).catch((error) => {
      // Best effort: what is not given back fills up again by itself.
      if (!(error instanceof ResilError)) report('refund', error);
    });
    return { ...limited, settle };
  });
}

module.exports = { limits };
