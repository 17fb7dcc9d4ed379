'use strict';
/**
 * What the SDK says about itself: metrics, spans, channels and hooks, under the names of docs/telemetry.md.
 *
 * Channels of `node:diagnostics_channel`: `resil:call` and one for each hook, `resil:beforeSleep`, `resil:onHedge`, `resil:onTimeout`,
 * `resil:onOpen`, `resil:onTransition`, `resil:onLost`, `resil:onDrop`, `resil:onOutlived`, `resil:onAway`, `resil:onRefused`, `resil:onBack`.
 *
 * Nothing is converted while nobody listens: a channel cannot say that somebody subscribed, so each call looks at it, which is one comparison.
 * Events of this thread come to this thread, from the event loop, after the call went on; listening keeps no process alive.
 */
const { channel } = require('node:diagnostics_channel');
const native = require('./native.js');
const { listenAt, EVENTS } = require('./kept.js');

const HOOKS = ['beforeSleep', 'onHedge', 'onTimeout', 'onOpen', 'onLost', 'onDrop', 'onOutlived', 'onAway', 'onBack'];
const HAPPENINGS = [...HOOKS, 'onTransition', 'onRefused'];
const calls = channel('resil:call');
const happenings = new Map(HAPPENINGS.map((kind) => [kind, channel(`resil:${kind}`)]));

/** What was subscribed to natively, while somebody listens. */
let nativeCalls;
let nativeHappenings;
/** Spans and hooks, beside the channels. */
const callListeners = new Set();
const happeningListeners = new Set();

/** Subscribes natively to what somebody listens to, and to nothing else. */
function look() {
  const wantsCalls = calls.hasSubscribers || callListeners.size > 0;
  if (wantsCalls !== (nativeCalls !== undefined)) {
    if (wantsCalls) nativeCalls = native.subscribeEvents(true);
    else { nativeCalls.close(); nativeCalls = undefined; }
  }
  let wants = happeningListeners.size > 0;
  for (const each of happenings.values()) wants ||= each.hasSubscribers;
  if (wants !== (nativeHappenings !== undefined)) {
    if (wants) nativeHappenings = native.subscribeEvents(false);
    else { nativeHappenings.close(); nativeHappenings = undefined; }
  }
}

/** The channels as they were when it was last looked: a channel that gains or loses its subscribers changes this. */
function lookQuickly() {
  if (calls.hasSubscribers !== seenCalls || anyHappening() !== seenHappenings) {
    seenCalls = calls.hasSubscribers;
    seenHappenings = anyHappening();
    look();
  }
}
let seenCalls = false;
let seenHappenings = false;
function anyHappening() {
  for (const each of happenings.values()) if (each.hasSubscribers) return true;
  return false;
}

function tell(event) {
  if (event.calls !== undefined) {
    tellCalls(event.calls);
    return;
  }
  const { kind, ...said } = event;
  const to = happenings.get(kind);
  // A subscriber that throws is an uncaught exception of its own, as everywhere in diagnostics_channel.
  if (to?.hasSubscribers) to.publish(said);
  for (const listener of happeningListeners) listener(kind, said);
}

/** Calls that ended, as many values for each as native `shown_calls` writes. */
function tellCalls(row) {
  for (let at = 0; at < row.length; at += 9) {
    const said = {
      name: row[at],
      primitive: row[at + 1],
      operation: row[at + 2],
      outcome: row[at + 3],
      isError: row[at + 4],
      error: row[at + 5],
      beganMs: row[at + 6],
      tookMs: row[at + 7],
      parent: row[at + 8],
    };
    if (calls.hasSubscribers) calls.publish(said);
    for (const listener of callListeners) listener('call', said);
  }
}
listenAt(EVENTS, { tell }, 'tell');

/** Warns once that something of the user's does not work, by the name of its error alone: its text may be anything. */
function once(what) {
  let isSaid = false;
  return (error) => {
    if (isSaid) return;
    isSaid = true;
    const name = error instanceof Error ? error.name : typeof error;
    process.emitWarning(`${what} threw ${name}; calls go on, and it is not said again`, { type: 'ResilWarning', code: 'RESIL_HOOK' });
  };
}

/** Something that was switched on. */
class Switch {
  #from;
  #listener;
  constructor(from, listener) {
    this.#from = from;
    this.#listener = listener;
    from.add(listener);
    look();
  }

  close() {
    this.#from.delete(this.#listener);
    look();
  }

  [Symbol.dispose ?? Symbol.for('Symbol.dispose')]() { this.close(); }
}

/** Calls functions when something happens. See types/telemetry.d.ts. */
function hooks(given) {
  if (given === null || typeof given !== 'object') throw new TypeError('hooks must be an object of functions');
  const { only, ...chosen } = given;
  if (only !== undefined && typeof only !== 'string') throw new TypeError('only must be a string');
  const failed = {};
  for (const [kind, hook] of Object.entries(chosen)) {
    if (!HOOKS.includes(kind)) throw new TypeError(`${kind} is no hook; there are: ${HOOKS.join(', ')}`);
    if (hook !== undefined && typeof hook !== 'function') throw new TypeError(`${kind} must be a function`);
    failed[kind] = once(`the hook ${kind}`);
  }
  return new Switch(happeningListeners, (kind, said) => {
    const hook = Object.hasOwn(chosen, kind) ? chosen[kind] : undefined;
    if (hook === undefined || (only !== undefined && said.name !== undefined && said.name !== only)) return;
    try {
      // One that is async may reject later.
      const result = hook(said);
      if (typeof result?.then === 'function') result.then(undefined, failed[kind]);
    } catch (error) {
      failed[kind](error);
    }
  });
}

/** All metrics there are. */
function names() {
  return native.metricNames().map(([name, kind, labels, help]) => ({ name, kind, labels: labels.split(','), help }));
}

/** Every series that moved. */
function metrics() {
  const bounds = native.metricBuckets();
  return native.readMetrics().map(({ metric, labels, value }) => (typeof value === 'number' ? { metric, labels, value } : {
    metric, labels, value: { ...value, cumulative: value.cumulative.map((count, at) => [bounds[at], count]) },
  }));
}

function api() {
  try {
    return require('@opentelemetry/api');
  } catch {
    throw new Error('telemetry.instrument needs OpenTelemetry: npm install @opentelemetry/api');
  }
}

/** Makes OpenTelemetry spans of calls, and metrics of counts. */
function instrument({ tracerProvider, meterProvider } = {}) {
  const otel = api();
  const tracer = (tracerProvider ?? otel.trace).getTracer('resil');
  observe((meterProvider ?? otel.metrics).getMeter('resil'));
  const failed = once('OpenTelemetry');
  return new Switch(callListeners, (_, call) => {
    try {
      span(otel, tracer, call);
    } catch (error) {
      failed(error);
    }
  });
}

function span(otel, tracer, { primitive, name, operation, outcome, isError, error, beganMs, tookMs, parent }) {
  const attributes = { name, operation, outcome, ...(isError && { 'error.type': error ?? 'error' }) };
  const made = tracer.startSpan(`resil.${primitive}`, { attributes, startTime: beganMs }, parentOf(otel, parent));
  if (isError) made.setStatus({ code: otel.SpanStatusCode.ERROR });
  made.end(beganMs + tookMs);
}

const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

function parentOf(otel, text) {
  const [, traceId, spanId, flags] = TRACEPARENT.exec(text ?? '') ?? [];
  if (traceId === undefined) return otel.ROOT_CONTEXT;
  return otel.trace.setSpanContext(otel.ROOT_CONTEXT, { traceId, spanId, traceFlags: Number.parseInt(flags, 16) });
}

/** OpenTelemetry has no histograms that can be read at any time: each is three counters. */
function observe(meter) {
  const reading = (metric, read) => (result) => {
    for (const sample of metrics()) if (sample.metric === metric) read(sample, result);
  };
  for (const { name, kind, help } of names()) {
    const number = reading(name, ({ value, labels }, result) => result.observe(value, labels));
    if (kind === 'counter') meter.createObservableCounter(name, { description: help }).addCallback(number);
    else if (kind === 'gauge') meter.createObservableUpDownCounter(name, { description: help }).addCallback(number);
    else {
      meter.createObservableCounter(`${name}_bucket`, { description: help }).addCallback(reading(name, ({ value, labels }, result) => {
        for (const [le, count] of [...value.cumulative, ['+Inf', value.count]]) result.observe(count, { ...labels, le: String(le) });
      }));
      meter.createObservableCounter(`${name}_count`).addCallback(reading(name, ({ value, labels }, result) => result.observe(value.count, labels)));
      meter.createObservableCounter(`${name}_sum`, { unit: 's' }).addCallback(reading(name, ({ value, labels }, result) => result.observe(value.sum, labels)));
    }
  }
}


module.exports = { lookQuickly, telemetry: { hooks, instrument, metrics, names } };
