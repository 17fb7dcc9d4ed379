'use strict';
/**
 * What a function is told: which attempt it is, and a signal that is made only if somebody looks at it (making one costs
 * more than the whole call).
 */
class Context {
  #controller;
  #reason;
  #isAborted = false;

  constructor(attempt, fence) {
    this.attempt = attempt;
    this.fence = fence;
  }

  get signal() {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#isAborted) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  }

  /** Nobody waits any more, because of `reason`. */
  static abort(context, reason) {
    if (context.#isAborted) return;
    context.#isAborted = true;
    context.#reason = reason;
    context.#controller?.abort(reason);
  }
}

module.exports = { Context };
