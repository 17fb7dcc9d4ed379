'use strict';
/**
 * The trace that a call belongs to, if the process has OpenTelemetry: reports to breakers carry its id, so that the event of a circuit that opened
 * leads to the request that opened it.
 *
 * `@opentelemetry/api` is no dependency. It leaves a mark once somebody has set it up; before that nothing is looked for.
 */
const MARK = Symbol.for('opentelemetry.js.api.1');
/** `null`: it is there, and cannot be loaded from here. */
let api;

function loaded() {
  if (api !== undefined) return api;
  try {
    api = require('@opentelemetry/api');
  } catch {
    api = null;
  }
  return api;
}

const NO_TRACE = /^0*$/;

/** The id of the current trace; `undefined` if there is none. */
function traceId() {
  if (globalThis[MARK] === undefined) return undefined;
  try {
    const id = loaded()?.trace.getSpanContext(loaded().context.active())?.traceId;
    return typeof id === 'string' && !NO_TRACE.test(id) ? id : undefined;
  } catch {
    return undefined;
  }
}

module.exports = { traceId };
