/**
 * Middleware for Express, and for whatever takes `(request, response, next)` on Node's own HTTP server.
 *
 *     app.use(rateLimit({ tier: (request) => ({ limiter: isPro(request) ? pro : free, key: request.user.id }) }));
 *     app.post('/orders', idempotency({ client, name: 'orders', tenant: (request) => request.user.id, required: true }), create);
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { IdempotencyOptions, RateLimitOptions, Run } from './middleware.js';

export type { IdempotencyOptions, RateLimitOptions, Tier } from './middleware.js';
export type Middleware<Request extends IncomingMessage> =
  (request: Request, response: ServerResponse, next: (error?: unknown) => void) => void;

/** Returns 429 when the limit of the caller's tier is exhausted; every response says what is left. */
export function rateLimit<Request extends IncomingMessage = IncomingMessage>(options: RateLimitOptions<Request>): Middleware<Request>;
/**
 * Does what is asked under an `Idempotency-Key` once, and gives every duplicate the first response. Before a body parser it sees
 * the bytes as they came; after one, `request.rawBody` or what the parser made of them. The same in the whole fleet, please.
 */
export function idempotency<Request extends IncomingMessage = IncomingMessage>(options: IdempotencyOptions<Request>): Middleware<Request>;
/** What the handler of this request works under. `undefined` without a key. */
export function runOf(request: IncomingMessage): Run | undefined;
