'use strict';
/**
 * Limits by tier, for any HTTP server: a request is checked, and what that means for its answer is said by the native half.
 */
const native = require('../native.js');
const given = require('../arguments.js');
const { wrongType } = require('../errors.js');
const { run } = require('../calls.js');
const { Limiter } = require('../limiter.js');
const { ofTheService } = require('./answers.js');

const OPTIONS = ['tier', 'headers', 'reset'];
const TIER = ['limiter', 'key', 'cost', 'name'];

/** A function of a request: `undefined` if it is not limited, else `{headers, refusal}`. */
function limits(options) {
  const { tier, headers = 'all', reset = 'after' } = given.only('options', options, OPTIONS);
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
    return run(undefined, () => native.httpCheck(limiter._inner, key, cost, policy, headers, reset === 'at'));
  });
}

module.exports = { limits };
