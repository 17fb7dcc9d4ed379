/** Messages of a queue, handled by a function. */
import type { Duration } from './common.js';
import type { FailureClass } from './dead_letters.js';
import type { Context } from './guard.js';

export interface WorkerSettings {
  /** Where messages come from: the ledger of the same name by default. */
  source?: WorkSource;
  /** How many messages are handled at once. 5 by default. */
  workers?: number;
  /** How long a handler may take. 5 minutes by default. Then its signal is aborted, and the message is dead. */
  deadline?: Duration;
  /** How long a handler may still take when the worker stops. 25 s by default. Then the message goes back. */
  drain?: Duration;
  /** A message that was delivered more often goes to the ledger, which gives it out alone. 3 by default. */
  crashes?: number;
  /** A failure is acknowledged only when so many replicas of the ledger have it. By default one, if the ledger's primary has any. */
  replicas?: number;
  /** The same: only when the primary has it on its disk (WAITAOF). Off by default. */
  fsync?: boolean;
  /** Bring older messages up to date before the handler sees them. */
  upcasters?: Upcasters;
  /** Messages of one aggregate are handled in their order, also behind one that failed. */
  ordered?: boolean;
  /** Takes the retries of the ledger too. On by default. */
  retries?: boolean;
}
export type WorkSource = LedgerSource | StreamSource | RabbitSource | OutboxSource;
export interface LedgerSource { type: 'ledger'; name: string }
/** A Redis stream, read by a consumer group. */
export interface StreamSource {
  type: 'stream';
  stream: string;
  /** `"resil"` by default. */
  group?: string;
  prefetch?: number;
  /** How long a consumer may be silent before its messages are another's. 30 s by default. */
  reclaim?: Duration;
  /** What is acknowledged is deleted from the stream. */
  delete?: boolean;
  /** By default that of the client. */
  url?: string;
}
/** A queue of RabbitMQ. Either `queue` and `url`, or `env`. */
export interface RabbitSource {
  type: 'rabbit';
  /** `amqp://user:password@host:port/vhost`, or `amqps://`. */
  url?: string;
  queue?: string;
  /** All is read from `RABBITMQ_...`; this is the name in `RABBITMQ_{env}_QUEUE`. */
  env?: string;
  /** User and password of the source, if not those of the URL. */
  consumer?: [user: string, password: string];
  /** The same of the publisher. */
  producer?: [user: string, password: string];
  /** Messages that are fetched ahead, for each of `workers`. 10 by default. */
  prefetch?: number;
  workers?: number;
  queueKind?: 'quorum' | 'classic' | 'as-it-is';
  deliveryLimit?: number;
  bindings?: { exchange: string; exchangeKind: 'direct' | 'fanout' | 'topic' | 'headers'; routingKey: string }[];
  /** One consumer at a time gets messages, which keeps their order. */
  singleActive?: boolean;
}
/** An outbox table in Postgres. */
export interface OutboxSource {
  type: 'outbox';
  url: string;
  /** `"resil_outbox"` by default. */
  table?: string;
  prefetch?: number;
  /** How long a claim lasts once its process falls silent. 30 s by default. */
  claim?: Duration;
  /** How often an empty outbox is looked at. 500 ms by default. */
  poll?: Duration;
}
/** A message, as its handler sees it. */
export interface WorkerMessage {
  /** `source/id`: the key for whatever is to be done once. */
  readonly id: string;
  readonly payload: Buffer;
  readonly headers: Readonly<Record<string, string>>;
  readonly kind: string | null;
  readonly source: string | null;
  readonly aggregate: string | null;
  /** The version that it was sent in. */
  readonly schema: number | null;
  /** Failures that counted so far. */
  readonly attempt: number;
  readonly isRedelivered: boolean;
  /** The W3C trace context that it came with. */
  readonly traceparent: string | null;
  readonly traceId: string | null;
  /** The id of the request that it began with; a new one if it came without. */
  readonly headerId: string;
  /** Aborted when the handler should stop: its deadline, the end of a drain, or the message is not ours any more. */
  readonly signal: AbortSignal;
  readonly timeLeftMs: number;
}
/** What becomes of a message: retried by its ledger; the same, not counted, and the worker pauses; dead; gone; delivered again. */
export type WorkVerdictName = 'retry' | 'not-counted' | 'permanent' | 'drop' | 'give-back';
export interface WorkVerdict { verdict: WorkVerdictName; after?: Duration; failureClass?: FailureClass }
/** Thrown by a handler that knows what is to become of its message. */
export class WorkError extends Error {
  constructor(message: string, verdict?: WorkVerdictName, options?: { after?: Duration; failureClass?: FailureClass; cause?: unknown });
  readonly verdict: WorkVerdictName;
  readonly after: Duration | undefined;
  readonly failureClass: FailureClass | undefined;
}
/** Brings messages of older forms up to date when they are read; nothing is written back. */
export class Upcasters {
  constructor();
  /** Messages of `kind` in version `fromVersion` become the next version. `upcast` is a plain function of the payload. */
  step(kind: string, fromVersion: number, upcast: (payload: Buffer) => Uint8Array | string): this;
}
/** What became of messages. */
export interface WorkerReport {
  done: number;
  retried: number;
  dead: number;
  dropped: number;
  givenBack: number;
  known: number;
  stale: number;
  unsettled: number;
}
/** How a source or a publisher is. */
export interface SourceHealth { isConnected: boolean; reason?: string; since: Date; connections: number }
export interface WorkerHealth {
  queue: string;
  status: 'healthy' | 'degraded' | 'unhealthy';
  isLive: boolean;
  isReady: boolean;
  isPaused: boolean;
  running: number;
  ledger?: string;
  source?: SourceHealth;
  report: WorkerReport;
}
/** Handles the messages of one queue. `client.worker(...)` makes it. */
export class Worker {
  private constructor();
  readonly name: string;
  /**
   * Calls the handler for each message until `stop()`, an abort of `signal`, or a shutdown of the client. What it returns means done; what it
   * throws is judged by what it is, by `judge`, or by the verdict of a `WorkError`.
   */
  run(
    handler: (message: WorkerMessage, context: Context) => unknown,
    options?: { judge?: (error: unknown) => WorkVerdictName | WorkVerdict | undefined; signal?: AbortSignal },
  ): Promise<WorkerReport>;
  /** Takes no more, gives back what was not begun, and waits for what runs. A worker runs once. */
  stop(): void;
  health(): WorkerHealth;
}
export interface OutgoingOptions {
  /** Stays the same however often it is sent. A new one by default. */
  id?: string;
  kind?: string;
  aggregate?: string;
  schema?: number;
  headers?: Record<string, string>;
  /** It gets the same trace and the same `HeaderID`. */
  causedBy?: WorkerMessage;
  /** Of RabbitMQ. */
  exchange?: string;
  /** Of RabbitMQ: by default the queue of the publisher. */
  routingKey?: string;
}
/** Sends messages to a queue of RabbitMQ, or to a stream. `client.publisher(...)` makes it. */
export class Publisher {
  private constructor();
  /**
   * Its id, when the broker has confirmed it. It is sent at most five times, under one id; then BackendUnavailableError, and it may be sent again
   * under that id. InvalidArgumentError if no queue takes it.
   */
  publish(payload: string | Uint8Array, options?: OutgoingOptions): Promise<string>;
  /** It recovers without traffic. */
  health(): SourceHealth;
  close(): Promise<void>;
}
/** An outbox table: what makes it, and what adds a message in a transaction of yours. */
export class Outbox {
  constructor(table?: string);
  migration(): string;
  insert(): string;
  /** The values of a message: id, type, aggregate, schema, headers, payload. */
  row(payload: string | Uint8Array, options?: OutgoingOptions): [string, string | null, string | null, number | null, string | null, Buffer];
}
/** Events whose effect happens once: the texts of a table that says which did. */
export class ProcessedEvents {
  static migration(): string;
  /** The name of the consumer, and the id of the event. The event is new if a row was inserted. */
  static insert(): string;
}

declare module './client.js' {
  interface Client {
    worker(name: string, options?: WorkerSettings): Worker;
    publisher(to: RabbitSource | StreamSource): Publisher;
  }
}
