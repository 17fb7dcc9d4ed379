'use strict';
/**
 * What `console.log` shows of a message: which one it is, and how long it is. Payload, headers and the name of its aggregate are for the
 * handler alone; messages are written to logs.
 */
const INSPECT = Symbol.for('nodejs.util.inspect.custom');

function shown() {
  const { id, kind, source, schema, attempt, payload } = this;
  return { id, kind, source, schema, attempt, payloadBytes: payload?.length ?? 0 };
}

/** The same message. */
function discreet(message) {
  return Object.defineProperty(message, INSPECT, { value: shown });
}

module.exports = { discreet };
