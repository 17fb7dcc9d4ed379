/** What the middleware of Express and of Fastify have in common. */
import type { Client, IdempotentOptions, Limiter, Run } from './index.js';

export type { Run } from './index.js';

/** Which limit a request falls under, and whose. */
export interface Tier {
  limiter: Limiter;
  key: string;
  /** How many cells; one unless said. */
  cost?: number;
  /** What clients know the limit as; the limiter's own name unless said. */
  name?: string;
}

export interface RateLimitOptions<Request> {
  /** `undefined` and `null`: not limited. */
  tier(request: Request): Tier | null | undefined | Promise<Tier | null | undefined>;
  /** `RateLimit` and `RateLimit-Policy` (ietf), `X-RateLimit-*` (legacy), all of them unless said. */
  headers?: 'all' | 'ietf' | 'legacy' | 'none';
  /** Whether `X-RateLimit-Reset` is in seconds from now (unless said), or since 1970. */
  reset?: 'after' | 'at';
}

/** And all of `IdempotentOptions`: how long results are kept, how long a duplicate waits before it is told 409. */
export interface IdempotencyOptions<Request> extends Omit<IdempotentOptions, 'serializer' | 'remember'> {
  client: Client;
  /** Of the keys, on the server. */
  name: string;
  /** Who asks, as they were authenticated: nobody can name the keys, and get the answers, of another. What is no text is refused. */
  tenant(request: Request): string | Promise<string>;
  /** Whether a request without a key is 400. Not unless said. */
  required?: boolean | ((request: Request) => boolean | Promise<boolean>);
  /** `POST` and `PATCH` unless said. */
  methods?: readonly string[];
  /** Bytes of a request's body; above it, it is 413. 1 MiB unless said. */
  maxBody?: number;
  /** Bytes of an answer that is kept, headers included; of a larger one duplicates learn by 409 that it is done. 1 MiB by default. */
  maxAnswer?: number;
  /**
   * Which answers are kept: a function of the status, or a list of statuses. By default all but those that may be others the next time: 401, 403,
   * 408, 425, 429 and 5xx. After those the next request runs again.
   */
  keepAnswers?: ((status: number) => boolean) | Iterable<number>;
  /** How long a handler that has not answered is waited for after its client has left. A minute unless said. */
  afterHangUpMs?: number;
}
