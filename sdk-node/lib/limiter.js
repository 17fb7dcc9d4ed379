'use strict';
/**
 * Rate limits.
 */
const { ask, wrongType } = require('./errors.js');
const given = require('./arguments.js');
const native = require('./native.js');
const { Shape, run, through } = require('./calls.js');
const { Guard, behind, guarded } = require('./guard.js');

const DECIDED_BY = ['server', 'deny-cache', 'local', 'away-open'];

/** So many numbers are a verdict; behind them which tier binds, and of each so many. */
const OF_A_VERDICT = 9;
const OF_A_TIER = 6;
const NO_TIERS = Object.freeze([]);

const waitOf = (ms) => (ms < 0 ? null : ms);

function verdict(numbers) {
  const [granted, capacity, remaining, wait, resetAfterMs, decidedBy, limit, periodMs, windowMs, binding = 0] = numbers;
  return {
    granted, isGranted: granted > 0, limit, periodMs, capacity, remaining, retryAfterMs: waitOf(wait), resetAfterMs,
    windowMs, decidedBy: DECIDED_BY[decidedBy], binding, tiers: numbers.length > OF_A_VERDICT ? tiersOf(numbers) : NO_TIERS,
  };
}

function tiersOf(numbers) {
  const tiers = [];
  for (let at = OF_A_VERDICT + 1; at < numbers.length; at += OF_A_TIER) {
    const [limit, periodMs, capacity, remaining, wait, resetAfterMs] = numbers.slice(at, at + OF_A_TIER);
    tiers.push({ limit, periodMs, capacity, remaining, retryAfterMs: waitOf(wait), resetAfterMs });
  }
  return tiers;
}

/** Questions that are answered with a verdict. */
class Asking extends Shape {
  value(numbers) { return verdict(numbers); }
}
const ASKING = new Asking();
const PLAIN = new Shape();

const WATCHED = ['signal'];

class Limiter {
  constructor(client, name, limit) {
    given.text('name', name);
    if (limit === undefined) throw wrongType('limit', 'an object such as perSecond(10)', limit);
    const json = given.settings('limit', limit);
    const inner = given.reading([], () => client.limiter(name, json));
    behind(this, { _inner: inner, _guard: new Guard(ask(() => inner.guard()), [{}]), _name: name });
  }

  get name() { return this._name; }

  async check(key, cost = 1, ...rest) { return this._ask('check', key, 'cost', cost, rest); }
  async upTo(key, most, ...rest) { return this._ask('upTo', key, 'most', most, rest); }
  async refund(key, cells, ...rest) { return this._ask('refund', key, 'cells', cells, rest); }
  async peek(key, ...rest) { return this._ask('peek', key, undefined, 0, rest); }
  async acquire(key, cost = 1, ...rest) { await this._ask('acquire', key, 'cost', cost, rest); }

  async untilReady(key, maxWait, options) {
    given.atMost('untilReady', arguments, 3);
    given.text('key', key);
    const wait = given.duration('maxWait', maxWait);
    const { signal, cost = 1 } = given.only('options', options, ['signal', 'cost']);
    given.integer('cost', cost);
    await run(given.signal(signal), () => this._inner.untilReady(key, wait, cost));
  }

  /** `what` is the name of the number; what comes after it are the options. */
  _ask(method, key, what, cells, rest) {
    if (rest.length > 1) given.atMost(method, [key, ...(what === undefined ? [] : [cells]), ...rest], what === undefined ? 2 : 3);
    given.text('key', key);
    if (what !== undefined) given.integer(what, cells);
    const signal = rest[0] === undefined ? undefined : given.signal(given.only('options', rest[0], WATCHED).signal);
    return through(method === 'acquire' ? PLAIN : ASKING, undefined, signal, () => this._inner[method](key, cells));
  }
}
guarded(Limiter);

/** Takes from every limit, or from none. */
async function checkAll(client, limits, cost = 1, options) {
  if (limits === null || typeof limits !== 'object' || typeof limits[Symbol.iterator] !== 'function') throw wrongType('limits', 'a list of [limiter, key]', limits);
  const all = [...limits];
  all.forEach((pair, at) => {
    if (!Array.isArray(pair) || !(pair[0] instanceof Limiter)) throw wrongType(`limits[${at}]`, '[limiter, key]', pair);
    given.text(`limits[${at}][1]`, pair[1]);
  });
  given.integer('cost', cost);
  const signal = given.signal(given.only('options', options, WATCHED).signal);
  const [[granted, refusedBy], binding, ...each] = await run(signal, () => native.checkAll(client, all.map(([limiter]) => limiter._inner), all.map(([, key]) => key), cost));
  return { granted, isGranted: granted > 0, refusedBy: refusedBy < 0 ? null : refusedBy, binding: verdict(binding), each: each.map(verdict) };
}

const per = (period) => (limit, more) => ({ ...given.options('more', more), limit: given.integer('limit', limit), period });

checkAll.most = 3;

module.exports = {
  Limiter, checkAll, perSecond: per('1s'), perMinute: per('1m'), perHour: per('1h'), perDay: per('1d'),
  made: { limiter: (...said) => new Limiter(...said), checkAll },
};
