/** Messages that failed. */
import type { Duration } from './common.js';

export type FailureClass = 'transient' | 'business' | 'external';
export type LetterState = 'waiting' | 'taken' | 'parked' | 'dead' | 'resolved' | 'archived' | 'done';
export type DeathReason = 'retries' | 'final' | 'crash' | 'age';
export type CauseCategory = 'infrastructure' | 'contract' | 'business' | 'poison';

export interface DeadLettersSettings {
  /** How long a taker may be silent. It is renewed while a message is here. */
  lease?: Duration;
  /** How long the lease lasts once the connection of this process has closed. */
  grace?: Duration;
  /** How many messages are handled at once. */
  concurrency?: number;
  /** How long a loop waits for a message with one question. */
  wait?: Duration;
  /** Who governs, for the audit. */
  actor?: string;
  /** A failure counts only when so many replicas know of it; else BackendUnavailableError: do not acknowledge the message. */
  replicas?: number;
  /** The same: only when the primary has it on its disk (WAITAOF). */
  fsync?: boolean;
}
/** What is said of a failure. */
export interface FailureNote {
  failureClass?: FailureClass;
  /** Failures that belong together. */
  group?: string;
  /** Not to be retried before this has passed. */
  after?: Duration;
  /** Attempts made before the ledger knew the message. */
  prior?: number;
  count?: 'counted' | 'not-counted' | 'final';
}
/** What is known of a message. */
export interface LetterOptions {
  payload?: string | Uint8Array;
  headers?: string | Uint8Array;
  /** Where it is stored, in place of the payload. */
  reference?: string;
  kind?: string;
  source?: string;
  /** What it belongs to: an order, a customer. */
  aggregate?: string;
  /** The version of its form. */
  schema?: number;
}
export type FailVerdict =
  | { verdict: 'retry'; attempt: number; delayMs: number }
  | { verdict: 'dead'; deaths: number; group: string; reason: DeathReason }
  | { verdict: 'known'; state: LetterState; attempt: number };
export type ParkVerdict =
  | { verdict: 'free' }
  | { verdict: 'parked'; position: number }
  | { verdict: 'known'; state: LetterState; attempt: number };
/** A message that was taken. */
export interface TakenMessage {
  readonly id: string;
  /** `null` if it is stored elsewhere. */
  readonly payload: Uint8Array | null;
  readonly headers: Uint8Array;
  readonly reference: string | null;
  readonly kind: string | null;
  readonly source: string | null;
  readonly aggregate: string | null;
  readonly schema: number | null;
  /** Failures that counted so far. */
  readonly attempt: number;
  /** How many of its takers were not heard of again. */
  readonly lapses: number;
  readonly deaths: number;
  readonly failureClass: FailureClass;
  readonly group: string | null;
  /** How it failed last. */
  readonly error: string | null;
  /** The case that redrove it. */
  readonly case: number | null;
  readonly fence: bigint;
}
/** To be settled once. Forgotten, it is given back. */
export class TakenLetter implements TakenMessage {
  private constructor();
  readonly id: string;
  readonly payload: Uint8Array | null;
  readonly headers: Uint8Array;
  readonly reference: string | null;
  readonly kind: string | null;
  readonly source: string | null;
  readonly aggregate: string | null;
  readonly schema: number | null;
  readonly attempt: number;
  readonly lapses: number;
  readonly deaths: number;
  readonly failureClass: FailureClass;
  readonly group: string | null;
  readonly error: string | null;
  readonly case: number | null;
  readonly fence: bigint;
  /** Whether another may have it soon. What is done with it still counts until then. */
  readonly isLost: boolean;
  /** It was handled. */
  done(): Promise<void>;
  /** It failed: it is retried later, or it dies. */
  fail(error: string | Error, options?: FailureNote): Promise<FailVerdict>;
  /** It was not tried: it is due again after `delay`, and nothing is counted. */
  giveBack(delay?: Duration): Promise<void>;
}
export interface LetterView {
  id: string;
  state: LetterState;
  attempt: number;
  lapses: number;
  deaths: number;
  reason: DeathReason | null;
  kind: string | null;
  source: string | null;
  aggregate: string | null;
  schema: number | null;
  headers: Uint8Array | null;
  /** `null` in a list. */
  payload: Uint8Array | null;
  reference: string | null;
  failureClass: FailureClass;
  group: string | null;
  firstError: string | null;
  lastError: string | null;
  /** Milliseconds since the epoch, as all moments here. */
  firstAt: number;
  lastAt: number;
  diedAt: number | null;
  dueAt: number | null;
  held: boolean;
  attempts: { at: number; failureClass: FailureClass; delayMs: number }[];
  cases: number[];
  /** What was longer than the ledger keeps. */
  cut: string[];
}
export interface LetterFilter {
  state?: Exclude<LetterState, 'done'>;
  kind?: string;
  failureClass?: FailureClass;
  group?: string;
  aggregate?: string;
  /** Those that this case redrove. */
  case?: number;
  since?: Duration;
  until?: Duration;
  cursor?: bigint;
  limit?: number;
}
export interface HandledReport {
  done: number;
  failed: number;
  givenBack: number;
  unsettled: number;
}
export interface LedgerInfo {
  waiting: number;
  taken: number;
  parked: number;
  dead: number;
  resolved: number;
  archived: number;
  held: number;
  entries: number;
  bytes: number;
  groups: number;
  casesOpen: number;
  alertsUnseen: number;
  pausedUntil: number | null;
}
export interface LetterGroup {
  group: string;
  kind: string | null;
  dead: number;
  entries: number;
  deaths: number;
  firstAt: number;
  lastAt: number;
  sample: string | null;
  cases: number[];
}
export interface RedriveProgress {
  phase: 'running' | 'verifying' | 'draining' | 'stopped' | 'failed' | 'finished';
  startedAt: number;
  rate: { count: number; periodMs: number };
  first: number;
  oneshot: boolean;
  auto: boolean;
  given: number;
  resolved: number;
  died: number;
  active: number;
}
export interface LetterCase {
  case: number;
  category: CauseCategory;
  cause: string;
  fix: string;
  decision: string | null;
  groups: string[];
  user: string | null;
  actor: string | null;
  openedAt: number;
  closedAt: number | null;
  discarded: boolean;
  autoUntil: number | null;
  redrive: RedriveProgress | null;
}
export interface LedgerAlert {
  alert: number;
  kind: 'many' | 'spike' | 'aggregate' | 'stopped' | 'full';
  severity: 'warning' | 'critical';
  subject: string | null;
  count: number;
  at: number;
  seen: boolean;
}
export interface LedgerAudit {
  id: number;
  at: number;
  user: string | null;
  actor: string | null;
  correlation: string | null;
  action: string;
}
export interface ClassConfig {
  retries: number;
  baseMs: number;
  capMs: number;
}
export interface LedgerConfig {
  transient: ClassConfig;
  business: ClassConfig;
  external: ClassConfig;
  jitter: string;
  crashes: number;
  rateMax: { count: number; periodMs: number };
  afterMaxMs: number;
  pausedUntil: number | null;
}
export interface ClassChange {
  retries?: number;
  base?: Duration;
  cap?: Duration;
}
/** What is omitted stays. */
export interface LedgerChange {
  transient?: ClassChange;
  business?: ClassChange;
  external?: ClassChange;
  /** `"full"`, `"none"`, or such as `"plus 20"`. */
  jitter?: string;
  /** After so many lapses a message dies. */
  crashes?: number;
  rateMax?: { count: number; period: Duration };
  afterMax?: Duration;
  paused?: boolean;
  pausedFor?: Duration;
}
export interface Diagnosis {
  groups: string[];
  category: CauseCategory;
  cause: string;
  fix: string;
  /** `business` needs it. */
  decision?: string;
  /** `infrastructure` only: for so long what dies in these groups is redriven by itself. */
  auto?: Duration;
}
export interface RedriveSettings {
  id?: string;
  kind?: string;
  aggregate?: string;
  since?: Duration;
  until?: Duration;
  count?: number;
  rate?: { count: number; period: Duration };
  /** How many are given out first; the rest follows when half of them are resolved. */
  first?: number;
  /** Each gets one attempt. */
  oneshot?: boolean;
}
export interface RedriveMatch {
  matched: number;
  complete: boolean;
  sample: string[];
}
/** A redrive that was started. It goes on without this. */
export class RedriveRun {
  private constructor();
  readonly case: number;
  readonly matched: RedriveMatch;
  progress(): Promise<RedriveProgress>;
  /** Nothing more is given out. */
  stop(): Promise<RedriveProgress>;
  /** Waits until it has finished, was stopped, or stopped itself because too many died again. */
  finished(options?: { signal?: AbortSignal }): Promise<RedriveProgress>;
}
/** What a handler gets beside the message. */
export interface Handling {
  /** Aborted when the lease is lost, or the loop is given up. */
  readonly signal: AbortSignal;
}
export class DeadLetters {
  private constructor();
  readonly name: string;
  /** The same ledger, governed by `actor`. */
  by(actor: string): DeadLetters;
  /** Records that a message failed. Whatever the verdict, it can be acknowledged where it came from; after an error it must not be. */
  fail(id: string, error: string | Error, options?: LetterOptions & FailureNote): Promise<FailVerdict>;
  /** Whether a message has to wait for an earlier one of its aggregate; then it is parked behind it. */
  park(id: string, options: LetterOptions): Promise<ParkVerdict>;
  /** Takes what is due, the oldest first; waits up to `wait` for the first. */
  take(options?: { count?: number; wait?: Duration; signal?: AbortSignal }): Promise<TakenLetter[]>;
  /** Messages as they become due, until a shutdown, or the signal is aborted. */
  entries(options?: { signal?: AbortSignal }): AsyncGenerator<TakenLetter, void, undefined>;
  /** Calls `handler` for each message until a shutdown. What it throws fails the message, as `judge` says; by default by its code. */
  run(
    handler: (message: TakenMessage, handling: Handling) => unknown,
    options?: { judge?: (error: any) => undefined | 'give-back' | FailureNote; signal?: AbortSignal },
  ): Promise<HandledReport>;
  get(id: string): Promise<LetterView | null>;
  standing(id: string): Promise<LetterState | null>;
  list(filter?: LetterFilter): Promise<{ letters: LetterView[]; cursor: bigint | null }>;
  listAll(filter?: LetterFilter): AsyncGenerator<LetterView, void, undefined>;
  info(): Promise<LedgerInfo>;
  config(): Promise<LedgerConfig>;
  configure(change: LedgerChange): Promise<void>;
  groups(): Promise<LetterGroup[]>;
  cases(): Promise<LetterCase[]>;
  case(number: number): Promise<LetterCase | null>;
  alerts(): Promise<LedgerAlert[]>;
  audit(): Promise<LedgerAudit[]>;
  /** Writes down why messages died. The number of the case, under which they can be redriven. */
  diagnose(diagnosis: Diagnosis): Promise<number>;
  /** Lets dead messages of a case be taken again, at a rate, a few first. */
  redrive(number: number, settings?: RedriveSettings): Promise<RedriveRun>;
  /** What `redrive` would cover. */
  dryRun(number: number, settings?: RedriveSettings): Promise<RedriveMatch>;
  stop(number: number): Promise<RedriveProgress>;
  /** 0, or how many messages are not resolved; then it stays open. */
  close(number: number): Promise<number>;
  /** Closes a case of poison: its messages are archived. */
  discard(number: number): Promise<number>;
  /** Keeps a message whatever happens. How many it is about. */
  hold(id: string, reason?: string): Promise<number>;
  holdAggregate(aggregate: string, reason?: string): Promise<number>;
  release(id: string, reason?: string): Promise<number>;
  releaseAggregate(aggregate: string, reason?: string): Promise<number>;
  /** Removes what ended longer ago than `older`, 90 days at least. */
  purge(older: Duration, options?: { state?: 'dead' | 'resolved' | 'archived'; limit?: number }): Promise<{ purged: number; left: number }>;
  seen(alert: number | bigint): Promise<boolean>;
}

declare module './client.js' {
  interface Client {
    deadLetters(name: string, options?: DeadLettersSettings): DeadLetters;
  }
}
