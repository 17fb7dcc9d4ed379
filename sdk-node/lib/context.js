'use strict';
/** The context of a function: which attempt it is, and a signal that is made only if somebody looks at it (making one costs
 * more than the whole call). Made late, it says what happened before.
 */
const { released } = require('./errors.js');
const { lookingSignal } = require('./signals.js');

// Symbols, and no private fields: those cost a fifth of a call.
const CONTROLLER = Symbol('controller');
const REASON = Symbol('reason');
const LOOK = Symbol('look');
const RELEASED = Symbol('released');

class Context {
  /** `look` aborts this context if nobody waits any more, or what it works under is lost; see signals.js. */
  constructor(attempt, fence, look) {
    this.attempt = attempt;
    this.fence = fence;
    this[CONTROLLER] = undefined;
    this[REASON] = undefined;
    this[LOOK] = look;
  }

  get signal() {
    if (this[CONTROLLER] === undefined) {
      this[CONTROLLER] = new AbortController();
      if (this[REASON] !== undefined) this[CONTROLLER].abort(this[REASON] === RELEASED ? released() : this[REASON]);
      else if (this[LOOK] !== undefined) return lookingSignal(this[CONTROLLER], this[LOOK]);
    }
    return this[CONTROLLER].signal;
  }

  /** Nobody waits any more, because of `reason`, which is an error. */
  static abort(context, reason) {
    if (context[REASON] !== undefined) return;
    context[REASON] = reason;
    context[CONTROLLER]?.abort(reason);
  }

  /** What it worked under was given back: nobody goes on under its signal. The error is made only if somebody has the signal. */
  static release(context) {
    if (context[REASON] !== undefined) return;
    context[REASON] = RELEASED;
    context[CONTROLLER]?.abort(released());
  }
}

module.exports = { Context };
