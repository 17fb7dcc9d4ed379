/** Connecting, and the handle from which everything is made. */
import type { Clock, Duration } from './common.js';

export interface ConnectSettings {
  /** The name of this process, which others see. Random by default. */
  name?: string;
  /** How long a command may take before the server counts as not responding. */
  commandTimeout?: Duration;
  /** How many processes share the limits while the server is away. */
  instances?: number;
  /** Whether connecting fails, and says why, if the server cannot be reached. By default the client is away until it can. */
  requireServer?: boolean;
  /** How many connections may wait for locks and loads at once. */
  waitingConnections?: number;
  /** For tests. */
  clock?: Clock;
  signal?: AbortSignal;
}
/**
 * `memory://`, `redis://`, `rediss://`, `redis+cluster://`, `redis+sentinel://`, `unix://`. A server that is away is no error; a
 * wrong URL, password or certificate, and a server without the module, are.
 */
export function connect(url: string, options?: ConnectSettings): Promise<Client>;

export type Status = 'healthy' | 'degraded' | 'unhealthy';
export interface Health {
  overall: Status;
  policies: Record<string, Status>;
  /** Why the server is away, if it is, and since when. */
  reason?: string;
  since?: Date;
}
export interface ShutdownReport {
  drained: number; cutOff: number; released: string[]; unreleased: { name: string; reason: string }[]; stragglers: number; isClean: boolean;
}

/** The methods that make handles are declared beside each: `declare module './client.js'`. */
export class Client implements AsyncDisposable {
  private constructor();
  health(): Health;
  /** Resolves when the server can be reached, or fails after `within` (10 s by default) with the reason why it cannot. */
  waitReady(within?: Duration): Promise<void>;
  readonly isShuttingDown: boolean;
  /** Takes no new calls, waits at most so long (5 s by default) for those in flight, gives back what is held, closes the connections. */
  shutdown(deadline?: Duration): Promise<ShutdownReport>;
  [Symbol.asyncDispose](): Promise<void>;
}
