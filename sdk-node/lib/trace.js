'use strict';
/**
 * The trace that a call belongs to, if the process has OpenTelemetry: reports to breakers carry it, so that the event of a
 * circuit that opened leads to the request that opened it, and spans of calls are its children.
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
/** Callers make many calls within one span: its text is kept. */
let last = { context: undefined, text: undefined };

/** The W3C `traceparent` of the current context; `undefined` if there is none. */
function traceparent() {
  if (globalThis[MARK] === undefined) return undefined;
  try {
    const context = loaded()?.trace.getSpanContext(loaded().context.active());
    if (context === undefined) return undefined;
    if (context !== last.context) last = { context, text: textOf(context) };
    return last.text;
  } catch {
    return undefined;
  }
}

function textOf({ traceId, spanId, traceFlags = 0 }) {
  if (typeof traceId !== 'string' || NO_TRACE.test(traceId) || typeof spanId !== 'string') return undefined;
  return `00-${traceId}-${spanId}-${(traceFlags & 0xff).toString(16).padStart(2, '0')}`;
}

module.exports = { traceparent };
