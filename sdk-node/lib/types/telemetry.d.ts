/** What the SDK says about itself: metrics, spans, channels and hooks. See docs/telemetry.md. */

/** As much of OpenTelemetry's providers as is used: the package need not be there. */
export interface TracerProviderLike { getTracer(name: string): unknown }
export interface MeterProviderLike { getMeter(name: string): unknown }

export interface Metric { name: string; kind: 'counter' | 'gauge' | 'histogram'; labels: string[]; help: string }
export interface MetricHistogram {
  /** How many were at most as long as each bound, in seconds. */
  cumulative: [bound: number, count: number][];
  count: number;
  /** In seconds. */
  sum: number;
}
export interface MetricSample { metric: string; labels: Record<string, string>; value: number | MetricHistogram }

/** What is called when something happens, on this thread, after the call went on. One that throws or rejects breaks nothing: there is one warning. */
export interface Hooks {
  /** Only for what has this name; servers have none, and are heard of all the same. */
  only?: string;
  /** A retry is about to wait. */
  beforeSleep?: (said: { name: string; attempt: number; delayMs: number }) => unknown;
  onHedge?: (said: { name: string }) => unknown;
  onTimeout?: (said: { name: string; scope: 'attempt' | 'total'; afterMs: number }) => unknown;
  onOpen?: (said: { name: string; previous: string; new: string; generation: number }) => unknown;
  onLost?: (said: { primitive: string; name: string; reason: string }) => unknown;
  /** A worker dropped a message. */
  onDrop?: (said: { name: string; id: string; reason: string }) => unknown;
  /** A message of a worker died: the ledger has its error. */
  onDead?: (said: { name: string; id: string; deaths: number; reason: 'retries' | 'final' | 'crash' | 'age' }) => unknown;
  /** An attempt under a stored policy took longer than its ticket lasts: nobody counted it. Once for each version of the policy. */
  onOutlived?: (said: { name: string; tookMs: number }) => unknown;
  /** A server, or the broker of a source or publisher, is away. */
  onAway?: (said: { address: string; reason: string }) => unknown;
  onBack?: (said: { address: string }) => unknown;
}

/** Something that was switched on; `close` switches it off. */
export interface TelemetrySwitch { close(): void }

export const telemetry: {
  /** All metrics there are: the same in Rust, Python and Node. */
  names(): Metric[];
  /** Every series that moved, in this process. */
  metrics(): MetricSample[];
  hooks(hooks: Hooks): TelemetrySwitch;
  /** Makes OpenTelemetry spans of calls, and metrics of counts, with these providers or else the global ones. Needs `@opentelemetry/api`. */
  instrument(providers?: { tracerProvider?: TracerProviderLike; meterProvider?: MeterProviderLike }): TelemetrySwitch;
};
