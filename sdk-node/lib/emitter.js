'use strict';
/**
 * An emitter that knows whether somebody listens. Not by listeners of its own (`newListener`): a user's `removeAllListeners()` would remove them.
 */
const { EventEmitter } = require('node:events');

class Emitter extends EventEmitter {
  /** A listener was added; what extends this says what that means. */
  _added(event, listener) {}
  /** One was removed, or all were. */
  _removed() {}

  on(event, listener) {
    super.on(event, listener);
    this._added(event, listener);
    return this;
  }

  addListener(event, listener) { return this.on(event, listener); }

  prependListener(event, listener) {
    super.prependListener(event, listener);
    this._added(event, listener);
    return this;
  }

  removeListener(event, listener) {
    super.removeListener(event, listener);
    this._removed();
    return this;
  }

  off(event, listener) { return this.removeListener(event, listener); }

  removeAllListeners(...events) {
    super.removeAllListeners(...events);
    this._removed();
    return this;
  }
}

module.exports = { Emitter };
