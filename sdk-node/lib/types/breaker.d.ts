/** Circuit breakers. */
import type { EventEmitter } from 'node:events';
import type { Away, Duration } from './common.js';
import type { ErrorClass, Guard, OnResult } from './guard.js';

export interface BreakerSettings {
  windowCalls?: number;
  windowTime?: Duration;
  /** In percent; 0 is off. */
  failureRate?: number;
  /** Goes with `slowCallRate`. */
  slowCallDuration?: Duration;
  slowCallRate?: number;
  /** 0 is off. */
  consecutiveFailures?: number;
  minCalls?: number;
  openFor?: Duration;
  /** Goes with `openMax`. */
  openFactor?: number;
  openMax?: Duration;
  probes?: number;
  successes?: number;
  probeLease?: Duration;
  quorum?: number;
  ramp?: Duration;
  idle?: Duration;
  /** Trips at the higher of `failureRate` and three standard deviations above the failure rate of the last hour; one of this process. */
  adaptive?: boolean;
  version?: number | bigint;
  mode?: 'batched' | 'exact';
  whenAway?: Away;
  flushInterval?: Duration;
  batch?: number;
  trust?: Duration;
  /** Errors that say nothing about the health of what was called. */
  ignore?: ((error: unknown) => boolean) | ErrorClass | readonly ErrorClass[];
  /** Which results are failures, too: a 503 that came as a response. The caller gets them all the same. */
  onResult?: OnResult;
}
export type BreakerState = 'closed' | 'open' | 'half-open' | 'ramping' | 'forced-open' | 'forced-closed' | 'disabled' | 'metrics';
export interface Transition { previous: BreakerState; new: BreakerState; generation: bigint }
export interface BreakerSnapshot {
  /** Whether anything is stored under its key. */
  exists: boolean; state: BreakerState; admits: boolean; retryAfterMs: number | null; generation: bigint;
  calls: number; failures: number; slow: number; failureRatePercent: number; slowRatePercent: number; failuresInARow: number;
  trips: number; probesOut: number; successes: number; openedAt: Date | null;
  forced: { by: string; reason: string; since: Date; until: Date | null; endsIn: 'closed' | 'half-open' | null } | null;
  version: bigint; config: Record<string, string>;
}
export interface BreakerEvents { transition: [transition: Transition] }
export interface Breaker extends Guard {}
/** Listeners of `transition` hear every change from when they are added, by any process; they keep the breaker for as long as there is its client. */
export class Breaker extends EventEmitter<BreakerEvents> {
  private constructor();
  readonly name: string;
  /** Where it stood when this process last heard of it; `null` before the first call, `state()` or listener. */
  readonly lastKnownState: BreakerState | null;
  /** The two steps by hand: may a call be made? */
  admit(options?: { signal?: AbortSignal }): Promise<Permit>;
  state(): Promise<BreakerSnapshot>;
  /** `open-then-probe` is a trip by hand: open for `duration`, and then half-open. */
  force(state: 'open' | 'open-then-probe' | 'closed' | 'disabled' | 'metrics' | 'auto', options?: { duration?: Duration; reason?: string }): Promise<BreakerState>;
  reset(): Promise<boolean>;
  configure(options: Omit<BreakerSettings, 'ignore'>): Promise<boolean>;
}
/** Leave to make one call. Disposed of without a word, it was cancelled. */
export class Permit implements AsyncDisposable {
  private constructor();
  success(): Promise<void>;
  failure(): Promise<void>;
  ignore(): Promise<void>;
  cancel(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

declare module './client.js' {
  interface Client {
    breaker(name: string, options?: BreakerSettings): Breaker;
  }
}
