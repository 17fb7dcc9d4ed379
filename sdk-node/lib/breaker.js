'use strict';
/**
 * Circuit breakers, and permits for one call.
 */
require('./symbols.js');
const { ask, wrongType } = require('./errors.js');
const given = require('./arguments.js');
const { run } = require('./calls.js');
const { Emitter } = require('./emitter.js');
const { Guard, behind, guarded, ignoringOf, resultJudgeOf } = require('./guard.js');
const { listen } = require('./kept.js');

const date = (ms) => (ms === null || ms === undefined ? null : new Date(ms));

function snapshot(json) {
  const { retryAfter, openedAt, forced, generation, version, config, ...rest } = JSON.parse(json);
  return {
    ...rest,
    retryAfterMs: retryAfter ?? null,
    generation: BigInt(generation),
    version: BigInt(version),
    openedAt: date(openedAt),
    forced: forced == null ? null : { by: forced.by, reason: forced.reason, since: date(forced.since), until: date(forced.until), endsIn: forced.endsIn ?? null },
    config: Array.isArray(config) ? Object.fromEntries(config) : config,
  };
}

/** Breakers that somebody listens to, by client. */
const heard = new WeakMap();

class Breaker extends Emitter {
  constructor(client, name, options) {
    super();
    given.text('name', name);
    const { ignore, onResult, ...settings } = given.options('options', options);
    const layer = { judge: ignoringOf('ignore', ignore), onResult: resultJudgeOf('onResult', onResult) };
    const json = given.settings('options', settings);
    const inner = given.reading(['ignore', 'onResult'], () => client.breaker(name, json));
    behind(this, { _inner: inner, _guard: new Guard(ask(() => inner.guard()), [layer]), _name: name, _isListening: false });
    if (!heard.has(client)) heard.set(client, new Set());
    behind(this, { _heard: new WeakRef(heard.get(client)) });
  }

  /** Nothing is sent while there is no listener. A breaker with a listener lives as long as its client, also without another reference. */
  _added(event) {
    if (event !== 'transition') return;
    this._heard.deref()?.add(this);
    if (this._isListening) return;
    this._isListening = true;
    this._inner.listen(listen(this, '_changed'));
  }

  _removed() {
    if (this.listenerCount('transition') === 0) this._heard.deref()?.delete(this);
  }

  get name() { return this._name; }
  get lastKnownState() { return this._inner.lastKnownState ?? null; }

  _changed(transition) { this.emit('transition', transition); }

  async admit(options) {
    given.atMost('admit', arguments, 1);
    const { signal } = given.only('options', options, ['signal']);
    return new Permit(await run(given.signal(signal), () => this._inner.admit()));
  }

  async state() {
    return snapshot(await run(undefined, () => this._inner.state()));
  }

  async force(state, options) {
    given.atMost('force', arguments, 2);
    given.text('state', state);
    const { duration, reason = '' } = given.only('options', options, ['duration', 'reason']);
    const json = given.optionalDuration('duration', duration);
    given.text('reason', reason);
    return run(undefined, () => this._inner.force(state, json, reason));
  }

  async reset() {
    return run(undefined, () => this._inner.reset());
  }

  async configure(options) {
    if (options === undefined) throw wrongType('options', 'an object', options);
    const json = given.settings('options', options);
    return run(undefined, () => this._inner.configure(json));
  }
}
guarded(Breaker);

const SUCCESS = 0;
const FAILURE = 1;
const IGNORE = 2;
const CANCEL = 3;

/** A permit for one call. Only the first report counts; disposed of without one, the call was cancelled. */
class Permit {
  constructor(inner) { behind(this, { _inner: inner }); }
  async success() { await run(undefined, () => this._inner.report(SUCCESS)); }
  async failure() { await run(undefined, () => this._inner.report(FAILURE)); }
  async ignore() { await run(undefined, () => this._inner.report(IGNORE)); }
  async cancel() { await run(undefined, () => this._inner.report(CANCEL)); }
  async [Symbol.asyncDispose]() { await this.cancel(); }
}

module.exports = { Breaker, Permit, made: { breaker: (...said) => new Breaker(...said) } };
