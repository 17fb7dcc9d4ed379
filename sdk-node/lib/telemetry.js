'use strict';
/**
 * What the SDK says about itself: metrics, spans, channels and hooks, under the names of docs/telemetry.md.
 *
 * Channels of `node:diagnostics_channel`: `resil:call` and one for each hook, `resil:beforeSleep`, `resil:onHedge`, `resil:onTimeout`,
 * `resil:onOpen`, `resil:onTransition`, `resil:onLost`, `resil:onDrop`, `resil:onDead`, `resil:onOutlived`, `resil:onAway`, `resil:onRefused`,
 * `resil:onBack`.
 *
 * Nothing is converted while nobody listens: a channel cannot say that somebody subscribed, so each call looks at it, which is one comparison.
 * Events of this thread come to this thread, from the event loop, after the call went on, calls some milliseconds' worth at once; listening
 * keeps no process alive.
 */
const { channel } = require('node:diagnostics_channel');
const native = require('./native.js');
const { listenAt, EVENTS } = require('./kept.js');

const HOOKS = ['beforeSleep', 'onHedge', 'onTimeout', 'onOpen', 'onLost', 'onDrop', 'onDead', 'onOutlived', 'onAway', 'onBack'];
const HAPPENINGS = [...HOOKS, 'onTransition', 'onRefused'];
const calls = channel('resil:call');
const happenings = new Map(HAPPENINGS.map((kind) => [kind, channel(`resil:${kind}`)]));
const happeningChannels = [...happenings.values()];

/** What was subscribed to natively, while somebody listens. */
let nativeCalls;
let nativeHappenings;
let tellsAtTheEnd = false;
/** Spans and hooks, beside the channels. */
const callListeners = new Set();
const happeningListeners = new Set();

/** Whether there is a listener of every call. */
function listensToCalls() {
  return calls.hasSubscribers || callListeners.size > 0;
}

/** Subscribes natively to what somebody listens to, and to nothing else. */
function look() {
  const wantsCalls = listensToCalls();
  if (wantsCalls !== (nativeCalls !== undefined)) {
    if (wantsCalls) {
      nativeCalls = native.subscribeEvents(true);
      if (!tellsAtTheEnd) process.once('exit', tellLeft);
      tellsAtTheEnd = true;
    } else {
      nativeCalls.close();
      nativeCalls = undefined;
    }
  }
  const wants = happeningListeners.size > 0 || anyHappening();
  if (wants !== (nativeHappenings !== undefined)) {
    if (wants) nativeHappenings = native.subscribeEvents(false);
    else { nativeHappenings.close(); nativeHappenings = undefined; }
  }
}

/** The channels as they were when it was last looked: a channel that gains or loses its subscribers changes this. */
function lookQuickly() {
  const happens = anyHappening();
  if (calls.hasSubscribers !== seenCalls || happens !== seenHappenings) {
    seenCalls = calls.hasSubscribers;
    seenHappenings = happens;
    look();
  }
}
let seenCalls = false;
let seenHappenings = false;
function anyHappening() {
  for (let at = 0; at < happeningChannels.length; at += 1) if (happeningChannels[at].hasSubscribers) return true;
  return false;
}

function tell(event) {
  if (event.numbers !== undefined) {
    tellCalls(event);
    return;
  }
  const { kind, ...said } = event;
  const to = happenings.get(kind);
  // A subscriber that throws is an uncaught exception of its own, as everywhere in diagnostics_channel.
  if (to?.hasSubscribers) to.publish(said);
  for (const listener of happeningListeners) listener(kind, said);
}

/** Calls that ended, as native `shown_calls` writes them. */
function tellCalls({ kinds, parents, numbers }) {
  for (let at = 0; at < numbers.length; at += 4) {
    const [kind, parent] = [numbers[at] * 6, numbers[at + 1]];
    const said = {
      name: kinds[kind],
      primitive: kinds[kind + 1],
      operation: kinds[kind + 2],
      outcome: kinds[kind + 3],
      isError: kinds[kind + 4],
      error: kinds[kind + 5],
      beganMs: numbers[at + 2],
      tookMs: numbers[at + 3],
      parent: parent < 0 ? null : parents[parent],
    };
    if (calls.hasSubscribers) calls.publish(said);
    for (const listener of callListeners) listener('call', said);
  }
}

/** Calls that ended wait for others, natively. They are reported now or never: the process ends, or a listener is removed. */
function tellLeft() {
  if (nativeCalls !== undefined) tellCalls(native.takeCalls());
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
    if (this.#from === callListeners && this.#from.has(this.#listener)) tellLeft();
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
  const [failed, parentOf] = [once('OpenTelemetry'), parents(otel)];
  return new Switch(callListeners, (_, call) => {
    try {
      span(otel, tracer, call, parentOf(call.parent));
    } catch (error) {
      failed(error);
    }
  });
}

function span(otel, tracer, { primitive, name, operation, outcome, isError, error, beganMs, tookMs }, parent) {
  const attributes = { name, operation, outcome };
  if (isError) attributes['error.type'] = error ?? 'error';
  const made = tracer.startSpan(`resil.${primitive}`, { attributes, startTime: beganMs }, parent);
  if (isError) made.setStatus({ code: otel.SpanStatusCode.ERROR });
  made.end(beganMs + tookMs);
}

const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

/** The context that a traceparent says. Calls of one caller come one after another: the last one is kept. */
function parents({ ROOT_CONTEXT, trace }) {
  let [known, context] = [null, ROOT_CONTEXT];
  return (text) => {
    if (text !== known) {
      const [, traceId, spanId, flags] = TRACEPARENT.exec(text ?? '') ?? [];
      context = traceId === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags: Number.parseInt(flags, 16) });
      known = text;
    }
    return context;
  };
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


module.exports = { listensToCalls, lookQuickly, telemetry: { hooks, instrument, metrics, names } };
