/**
 * Plugins for Fastify, for whatever is registered beside or after them.
 *
 *     await app.register(rateLimit, { tier: (request) => ({ limiter: free, key: request.ip }) });
 *     await app.register(idempotency, { client, name: 'orders', tenant: (request) => userOf(request), required: true });
 */
import type { IdempotencyOptions, RateLimitOptions, Run } from './middleware.js';

export type { IdempotencyOptions, RateLimitOptions, Tier } from './middleware.js';
/** What of a Fastify request these look at; yours is one. */
export interface FastifyLikeRequest {
  readonly method: string;
  readonly originalUrl: string;
  readonly headers: Record<string, string | string[] | undefined>;
  readonly ip: string;
}
export type Plugin<Options> = (fastify: any, options: Options) => Promise<void>;

/** Returns 429 when the limit of the caller's tier is exhausted; every response says what is left. A hook of `onRequest`. */
export const rateLimit: Plugin<RateLimitOptions<any>>;
/** Does what is asked under an `Idempotency-Key` once. Hooks of `preParsing`, `preHandler` and `onSend`: authenticate before. */
export const idempotency: Plugin<IdempotencyOptions<any>>;
/** What the handler of this request works under. `undefined` without a key. */
export function runOf(request: FastifyLikeRequest): Run | undefined;
