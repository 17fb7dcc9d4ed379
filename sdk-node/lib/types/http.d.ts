/** Errors and limits as HTTP has them. */
import type { Verdict } from './limiter.js';

/** An error as a whole response, `application/problem+json`. One that is none of ours is a 500 without its words. */
export function problem(error: unknown): { status: number; headers: Record<string, string>; body: string };
/** `RateLimit-Policy`, `RateLimit`, `X-RateLimit-*`, and `Retry-After` of a refusal. */
export function rateLimitHeaders(
  policy: string, verdict: Verdict, options?: { limit?: number; windowMs?: number; reset?: 'after' | 'at' },
): Record<string, string>;
/** The key of the header `Idempotency-Key`, or an `InvalidArgumentError`; `undefined` if it is not there and need not be. */
export function idempotencyKey(header: string | null | undefined, options?: { required?: boolean }): string | undefined;
/** What makes a request this request. */
export function requestFingerprint(method: string, path: string, body?: string | Uint8Array): string;
