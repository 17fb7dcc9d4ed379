'use strict';
/**
 * What a process does by itself: retry, timeout, hedge, bulkhead, fallback.
 */
require('./symbols.js');
const native = require('./native.js');
const { ask, wrongType } = require('./errors.js');
const given = require('./arguments.js');
const { run } = require('./calls.js');
const { Guard, behind, guarded, judgeOf, resultJudgeOf, predicate } = require('./guard.js');

/** The native clock behind one of `resil/testing`. */
function clockOf(said) {
  if (said === undefined || said === null) return undefined;
  if (!(said._inner instanceof native.TestClock)) throw wrongType('clock', 'a Clock of resil/testing', said);
  return said._inner;
}

/** `on` is required: a call that is made twice has to be one that may be. */
function judge(on) {
  if (on === undefined) throw wrongType('on', 'given: which errors are temporary (handleAll, classes, or a function)', on);
  return judgeOf('on', on);
}

/** A limit on extra load that several policies share. */
class Budget {
  constructor(options) {
    const { clock, ...settings } = given.options('options', options);
    const json = given.settings('options', settings);
    behind(this, { _inner: given.reading(['clock'], () => native.makeBudget(json, clockOf(clock))) });
  }

  get available() { return this._inner.available; }
}

/** Settings without a budget that is shared, and that. */
function budgetOf({ budget, ...settings }) {
  if (budget instanceof Budget) return [settings, budget._inner];
  return [budget === undefined ? settings : { ...settings, budget }, undefined];
}

class Retry {
  constructor(options) {
    const { on, onResult, name, clock, seed, ...rest } = given.options('options', options);
    const layer = { judge: on === undefined && onResult !== undefined ? undefined : judge(on), onResult: resultJudgeOf('onResult', onResult) };
    const number = seed === undefined ? undefined : given.whole('seed', seed);
    const [settings, shared] = budgetOf(rest);
    const json = given.settings('options', settings);
    const inner = given.reading(['on', 'onResult', 'name', 'clock', 'seed'], () => native.makeRetry(json, given.optionalText('name', name), clockOf(clock), number, shared));
    behind(this, { _guard: new Guard(inner, [layer]) });
  }
}

class Timeout {
  constructor(after) {
    const { after: duration, name, clock } = typeof after === 'object' && after !== null ? given.only('options', after, ['after', 'name', 'clock']) : { after };
    const json = given.duration('after', duration);
    const inner = ask(() => native.makeTimeout(json, given.optionalText('name', name), clockOf(clock)));
    behind(this, { _guard: new Guard(inner, [{}]) });
  }

  get afterMs() { return this._guard._inner.durationMs; }
}

class Hedge {
  constructor(options) {
    const { on, name, clock, ...rest } = given.options('options', options);
    const layer = { judge: judge(on) };
    const [settings, shared] = budgetOf(rest);
    const json = given.settings('options', settings);
    const inner = given.reading(['on', 'name', 'clock'], () => native.makeHedge(json, given.optionalText('name', name), clockOf(clock), shared));
    behind(this, { _guard: new Guard(inner, [layer]) });
  }

  get delayMs() { return this._guard._inner.durationMs; }
}

/** Marks a bulkhead that is made of a native one. */
const MADE = Symbol('made');

class Bulkhead {
  constructor(options, mark) {
    let inner = options;
    if (mark !== MADE) {
      const { name = 'bulkhead', clock, ...settings } = given.options('options', options);
      const json = given.settings('options', settings);
      inner = given.reading(['name', 'clock'], () => native.makeBulkhead(json, given.nonEmpty('name', name), clockOf(clock)));
    }
    behind(this, { _inner: inner, _guard: new Guard(inner.guard(), [{}]) });
  }

  get name() { return this._inner.name; }

  get metrics() {
    const [active, queued, available, completed, rejected, abandoned] = this._inner.metrics;
    return { active, queued, available, completed, rejected, abandoned };
  }

  partition(name) {
    given.text('name', name);
    return new Bulkhead(ask(() => this._inner.partition(name)), MADE);
  }

  async acquire(options) {
    const { signal, partition } = given.only('options', options, ['signal', 'partition']);
    const here = partition === undefined ? this : this.partition(partition);
    return new BulkheadPermit(await run(given.signal(signal), () => here._inner.acquire()));
  }

  tryAcquire() {
    return new BulkheadPermit(ask(() => this._inner.tryAcquire()));
  }
}

/** A permit of a bulkhead, until it is released. */
class BulkheadPermit {
  constructor(inner) { behind(this, { _inner: inner }); }
  release() { this._inner.release(); }
  [Symbol.dispose]() { this.release(); }
  async [Symbol.asyncDispose]() { this.release(); }
}

class Fallback {
  constructor(instead, options) {
    const { when } = given.only('options', options, ['when']);
    const applies = when === undefined ? undefined : predicate('when', when);
    if (typeof instead === 'function') given.func('instead', instead);
    behind(this, { _guard: new Guard(native.makeFallback(), [{ instead, when: applies }]) });
  }
}

[Retry, Timeout, Hedge, Bulkhead, Fallback].forEach(guarded);

const handleAll = () => true;
const handleNone = () => false;

module.exports = {
  Budget, Retry, Timeout, Hedge, Bulkhead, BulkheadPermit, Fallback, budgetOf, clockOf, handleAll, handleNone, judge,
  budget(options) { given.atMost('budget', arguments, 1); return new Budget(options); },
  retry(options) { given.atMost('retry', arguments, 1); return new Retry(options); },
  timeout(after) { given.atMost('timeout', arguments, 1); return new Timeout(after); },
  hedge(options) { given.atMost('hedge', arguments, 1); return new Hedge(options); },
  bulkhead(options) { given.atMost('bulkhead', arguments, 1); return new Bulkhead(options); },
  fallback(instead, options) { given.atMost('fallback', arguments, 2); return new Fallback(instead, options); },
};
