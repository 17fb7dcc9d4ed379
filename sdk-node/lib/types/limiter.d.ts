/** Rate limits. */
import type { Away, Duration } from './common.js';
import type { Guard } from './guard.js';

export interface LimitTier { limit: number; period: Duration; burst?: number }
export interface Limit extends LimitTier {
  /** `window`: never more than the limit in any period. */
  kind?: 'bucket' | 'window';
  /** Further limits that must all agree, each with a period of its own. */
  tiers?: LimitTier[];
  whenAway?: Away;
}
export function perSecond(limit: number, more?: Omit<Limit, 'limit' | 'period'>): Limit;
export function perMinute(limit: number, more?: Omit<Limit, 'limit' | 'period'>): Limit;
export function perHour(limit: number, more?: Omit<Limit, 'limit' | 'period'>): Limit;
export function perDay(limit: number, more?: Omit<Limit, 'limit' | 'period'>): Limit;

/** One tier of a limit, as it is after the call. */
export interface TierVerdict {
  limit: number; periodMs: number;
  /** What it holds when it is full: its burst, by default the limit. */
  capacity: number;
  remaining: number; retryAfterMs: number | null; resetAfterMs: number;
}
/**
 * What came of a question. Of a limit with several tiers the numbers are those of the one that binds: of a refusal the one that has to be waited for longest, of
 * a grant the one with the least left.
 */
export interface Verdict {
  /** Cells that were taken (by a refund: given back; by a peek: there to be taken). */
  granted: number;
  isGranted: boolean;
  /** The rate: so many per period. */
  limit: number;
  periodMs: number;
  /** What can be had at once when it is full: the burst, by default the limit. */
  capacity: number;
  remaining: number;
  /** 0 if nothing was refused; `null`: never, it costs more than the limit holds. */
  retryAfterMs: number | null;
  resetAfterMs: number;
  /** How long it takes to fill from empty to `capacity`. Without a burst that is the period. */
  windowMs: number;
  decidedBy: 'server' | 'deny-cache' | 'local' | 'away-open';
  /** Each tier of a limit that has several, in the order in which they were named. Empty if it has one. */
  tiers: readonly TierVerdict[];
  /** Which of them binds, counted from 0. */
  binding: number;
}
export interface Verdicts {
  granted: number; isGranted: boolean;
  /** Which of them refused first, counted from 0. */
  refusedBy: number | null;
  /** The one that speaks for all. */
  binding: Verdict;
  each: Verdict[];
}
export interface CheckOptions { signal?: AbortSignal }
export interface Limiter extends Guard {}
export class Limiter {
  private constructor();
  readonly name: string;
  /** Takes `cost` cells (1 by default), or none. A refusal is a verdict, not an error. */
  check(key: string, cost?: number, options?: CheckOptions): Promise<Verdict>;
  /** The same, or fails with a `RateLimitExceededError`. */
  acquire(key: string, cost?: number, options?: CheckOptions): Promise<void>;
  /** Books the next turn and waits for it, `maxWait` at most; fails at once with a `RateLimitExceededError` if it comes later. */
  untilReady(key: string, maxWait: Duration, options?: CheckOptions & { cost?: number }): Promise<void>;
  /** As many as there are, up to `most`. */
  upTo(key: string, most: number, options?: CheckOptions): Promise<Verdict>;
  peek(key: string, options?: CheckOptions): Promise<Verdict>;
  refund(key: string, cells: number, options?: CheckOptions): Promise<Verdict>;
}

declare module './client.js' {
  interface Client {
    limiter(name: string, limit: Limit): Limiter;
    /** Takes `cost` cells from every limit, or from none. */
    checkAll(limits: Iterable<readonly [Limiter, string]>, cost?: number, options?: { signal?: AbortSignal }): Promise<Verdicts>;
  }
}
