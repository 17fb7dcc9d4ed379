/** Rate limits. */
import type { Away, Span } from './common.js';
import type { Guard } from './guard.js';

export interface Tier { limit: number; period: Span; burst?: number }
export interface Limit extends Tier {
  /** `window`: never more than the limit in any period. */
  kind?: 'bucket' | 'window';
  /** Further limits that must all agree, each with a period of its own. */
  tiers?: Tier[];
  whenAway?: Away;
}
export function perSecond(limit: number, more?: Omit<Limit, 'limit' | 'period'>): Limit;
export function perMinute(limit: number, more?: Omit<Limit, 'limit' | 'period'>): Limit;
export function perHour(limit: number, more?: Omit<Limit, 'limit' | 'period'>): Limit;
export function perDay(limit: number, more?: Omit<Limit, 'limit' | 'period'>): Limit;

export interface Verdict {
  /** Cells that were taken (by a refund: given back; by a peek: there to be taken). */
  granted: number;
  isGranted: boolean;
  capacity: number;
  remaining: number;
  /** 0 if nothing was refused; `null`: never, it costs more than the limit holds. */
  retryAfterMs: number | null;
  resetAfterMs: number;
  decidedBy: 'server' | 'denyCache' | 'local' | 'awayOpen';
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
  /** Takes `cost` cells (one unless said), or none. A refusal is a verdict, not an error. */
  check(key: string, cost?: number, options?: CheckOptions): Promise<Verdict>;
  /** The same, or fails with a `RateLimitExceededError`. */
  acquire(key: string, cost?: number, options?: CheckOptions): Promise<void>;
  /** As many as there are, up to `most`. */
  upTo(key: string, most: number, options?: CheckOptions): Promise<Verdict>;
  peek(key: string, options?: CheckOptions): Promise<Verdict>;
  refund(key: string, cells: number, options?: CheckOptions): Promise<Verdict>;
}
