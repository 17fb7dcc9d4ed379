/** What the middleware of Express and of Fastify have in common. */
import type { Client, IdempotencySettings, Limiter, Run } from './index.js';

export type { Run } from './index.js';

/** Which limit a request falls under, and whose. */
export interface Tier {
  limiter: Limiter;
  key: string;
  /** How many cells. 1 by default. */
  cost?: number;
  /** The name of the limit in headers. By default the limiter's own name. */
  name?: string;
}

export interface RateLimitOptions<Request> {
  /** `undefined` and `null`: not limited. */
  tier(request: Request): Tier | null | undefined | Promise<Tier | null | undefined>;
  /** `RateLimit` and `RateLimit-Policy` (ietf), `X-RateLimit-*` (legacy), or all of them (default). */
  headers?: 'all' | 'ietf' | 'legacy' | 'none';
  /** Whether `X-RateLimit-Reset` is in seconds from now (default), or since 1970. */
  reset?: 'after' | 'at';
  /**
   * After which responses the cost is given back: a function of the status, or a list of statuses. Headers say what was left before that. A
   * request that gets no response counts as 500.
   */
  refund?: ((status: number) => boolean | Promise<boolean>) | Iterable<number>;
}

/** And all of `IdempotencySettings`: how long results are kept, how long a duplicate waits before it gets 409. */
export interface IdempotencyOptions<Request> extends Omit<IdempotencySettings, 'serializer' | 'remember'> {
  client: Client;
  /** Of the keys, on the server. */
  name: string;
  /** The authenticated caller: nobody can use the keys, and get the responses, of another. Anything but text is refused. */
  tenant(request: Request): string | Promise<string>;
  /** Whether a request without a key is 400. No by default. */
  required?: boolean | ((request: Request) => boolean | Promise<boolean>);
  /** `POST` and `PATCH` by default. */
  methods?: readonly string[];
  /** The longest body of a request, in bytes; a longer one is 413. 1 MiB by default. */
  maxBody?: number;
  /** Bytes of a response that is kept, headers included; of a larger one duplicates learn by 409 that it is done. 1 MiB by default. */
  maxResponse?: number;
  /**
   * Which responses are kept: a function of the status, or a list of statuses. By default all but those that may differ the next time: 401, 403,
   * 408, 425, 429 and 5xx. After those the next request runs again. If it throws, the request is answered 500 and the process is warned.
   */
  keepResponses?: ((status: number) => boolean | Promise<boolean>) | Iterable<number>;
  /** How long to wait for a handler after its client has left. One minute by default. */
  afterHangUpMs?: number;
}
