/**
 * What telemetry costs a limiter call over loopback, one call after the other: each kind beside the same calls without it, in turns.
 *
 * Spans are of a tracer that records and keeps nothing, within the span of a request. Most of what they cost is OpenTelemetry's own, so they
 * stand beside the same span made by hand around the call, and beside a program that has OpenTelemetry's API alone, or whose sampler drops them. What a turn switched on has exported everything before the turn is over. Turns are long:
 * to subscribe to a channel makes V8 throw away what it compiled.
 */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { ProxyTracerProvider, context, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { SamplingDecision, TracerProvider } from '@opentelemetry/sdk-trace';
import { connect, telemetry as resil } from 'resil';
import { bar, median, table } from './turns.mjs';

/** A call with it to a call without, or to a call with a span made by hand. */
const BOUND = 1.05;
const HOOKS = ['beforeSleep', 'onHedge', 'onTimeout', 'onOpen', 'onLost', 'onDrop', 'onOutlived', 'onAway', 'onBack'];
const UNTIL_MS = 5_000;
const nothing = () => {};

/** µs for each call: the processor time of the process for all of `work`, and the time that passed while it made its calls. */
async function cost(calls, work) {
  const before = process.cpuUsage();
  const ms = await work();
  const { user, system } = process.cpuUsage(before);
  return { cpu: (user + system) / calls, wall: (ms * 1_000) / calls };
}

/** Nothing is measured that does not happen. */
function expect(what, count, calls) {
  if (count !== calls) throw new Error(`${what}: ${count} of ${calls}`);
}

async function until(isSo) {
  const end = performance.now() + UNTIL_MS;
  while (!isSo() && performance.now() < end) await new Promise((resolve) => { setTimeout(resolve, 10); });
}

/** Ways of making so many calls. Each says how many ms these took. */
function waysOf(limiter, calls) {
  const all = async (call) => {
    const began = performance.now();
    for (let at = 0; at < calls; at += 1) await call();
    return performance.now() - began;
  };
  const check = () => limiter.check('ann');
  let spans = 0;
  const provider = new TracerProvider({ spanProcessors: [{ onStart: nothing, onEnd() { spans += 1; }, shutdown: async () => {}, forceFlush: async () => {} }] });
  const tracer = provider.getTracer('by hand');
  const inRequest = async (work) => {
    spans = 0;
    const request = tracer.startSpan('request');
    return context.with(trace.setSpan(context.active(), request), work);
  };
  /** `counted(count)` makes a provider that calls `count` for each span it is asked for. */
  const instrumentedBy = async (counted) => {
    let asked = 0;
    const instrumented = resil.instrument({ tracerProvider: counted(() => { asked += 1; }), meterProvider: NO_METERS });
    const ms = await all(check);
    await until(() => asked >= calls);
    instrumented.close();
    expect('spans asked for', asked, calls);
    return ms;
  };
  return {
    without: () => all(check),
    hooks: async () => {
      const hooks = resil.hooks(Object.fromEntries(HOOKS.map((kind) => [kind, nothing])));
      for (const kind of HOOKS) subscribe(`resil:${kind}`, nothing);
      const ms = await all(check);
      for (const kind of HOOKS) unsubscribe(`resil:${kind}`, nothing);
      hooks.close();
      return ms;
    },
    listener: async () => {
      let heard = 0;
      const listen = () => { heard += 1; };
      subscribe('resil:call', listen);
      const ms = await all(check);
      await until(() => heard >= calls);
      unsubscribe('resil:call', listen);
      expect('calls heard', heard, calls);
      return ms;
    },
    spans: () => inRequest(async () => {
      const instrumented = resil.instrument({ tracerProvider: provider, meterProvider: NO_METERS });
      const ms = await all(check);
      await until(() => spans >= calls);
      instrumented.close();
      expect('spans', spans, calls);
      return ms;
    }),
    dropped: () => instrumentedBy((count) => new TracerProvider({
      sampler: { shouldSample() { count(); return { decision: SamplingDecision.NOT_RECORD }; }, toString: () => 'drops all' },
    })),
    // A provider that nobody has given a delegate makes what the API makes without an SDK.
    apiAlone: () => instrumentedBy((count) => {
      const noop = new ProxyTracerProvider().getTracer('resil');
      return { getTracer: () => ({ startSpan(...args) { count(); return noop.startSpan(...args); } }) };
    }),
    byHand: () => inRequest(async () => {
      const ms = await all(() => tracer.startActiveSpan('resil.limiter', { attributes: { name: 'cost', operation: 'check' } }, async (span) => {
        const verdict = await check();
        span.setAttribute('outcome', verdict.isGranted ? 'granted' : 'denied');
        span.end();
        return verdict;
      }));
      expect('spans by hand', spans, calls);
      return ms;
    }),
  };
}

/** Meters that keep nothing: what is counted is read when somebody asks. */
const meter = { createObservableCounter: () => ({ addCallback: nothing }), createObservableUpDownCounter: () => ({ addCallback: nothing }) };
const NO_METERS = { getMeter: () => meter };

/** The costs of `one` beside those of `other`, which has its turn right before or after. */
async function beside(ways, one, other, calls, rounds) {
  const [cpu, wall, bare] = [[], [], []];
  for (let round = 0; round <= rounds; round += 1) {
    const order = round % 2 === 0 ? [one, other] : [other, one];
    const found = {};
    for (const name of order) found[name] = await cost(calls, ways[name]);
    // The first is to warm up.
    if (round === 0) continue;
    cpu.push(found[one].cpu / found[other].cpu);
    wall.push(found[one].wall / found[other].wall);
    bare.push(found[one].cpu - found[other].cpu);
  }
  return { cpu: median(cpu), wall: median(wall), added: median(bare) };
}

export async function telemetry({ ours, rounds, calls }) {
  const client = await connect(ours);
  const ways = waysOf(client.limiter('cost', { limit: 1_000_000_000, period: '1s' }), calls);
  const bare = [];
  for (let round = 0; round < 5; round += 1) bare.push((await cost(calls, ways.without)).cpu);
  const found = {};
  for (const kind of ['hooks', 'listener']) found[kind] = await beside(ways, kind, 'without', calls, rounds);
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  for (const kind of ['apiAlone', 'dropped', 'spans', 'byHand']) found[kind] = await beside(ways, kind, 'without', calls, rounds);
  found.both = await beside(ways, 'spans', 'byHand', calls, rounds);
  context.disable();
  await client.shutdown(1_000);

  const titles = {
    hooks: 'hooks and channels for everything', listener: 'a listener of every call that does nothing', spans: 'spans of a tracer that keeps nothing',
    apiAlone: "spans, with OpenTelemetry's API alone", dropped: 'spans that the sampler drops', byHand: 'the same spans made by hand', both: 'spans, beside those made by hand',
  };
  const percent = (ratio) => `${((ratio - 1) * 100).toFixed(1)} %`;
  const rows = Object.entries(titles).map(([kind, title]) => [title, percent(found[kind].cpu), percent(found[kind].wall), found[kind].added.toFixed(2)]);
  const bars = ['hooks', 'listener', 'apiAlone', 'both'].map((kind) => bar(`${titles[kind]}: at most ${percent(BOUND)} more CPU`, percent(found[kind].cpu), found[kind].cpu <= BOUND));
  const title = `What telemetry costs a limiter call of ${median(bare).toFixed(1)} µs of CPU`;
  return { title, table: table(['switched on', 'CPU', 'time', 'CPU added, µs'], rows), bars };
}
