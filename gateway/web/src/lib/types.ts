// What docs/gateway-api.md says, as types. Moments are milliseconds since the epoch; what is not known is null.

export type Role = "look" | "operate" | "govern";
export type Status = "healthy" | "degraded" | "unhealthy";

export interface Session {
  role: Role | null;
  name: string | null;
  csrf: string | null;
  needsToken: boolean;
  version: string;
  instance: string;
  backend: "redis" | "memory";
  serverNow: number;
  draining: boolean;
}

export interface Overview {
  circuits: { total: number; open: number; halfOpen: number; forced: number };
  locks: { held: number; contended: number; waiters: number };
  bulkheads: { total: number; full: number };
  policies: { live: number };
  deadLetters: { ledgers: number; dead: number; casesOpen: number; alertsUnseen: number };
  denied: { topEstimate: number };
  health: { status: Status; services: number };
  redis: { status: Status; reason: string | null; since: number | null };
  calls: { inFlight: number; total: number; failed: number; refused: number };
  serverNow: number;
}

export interface CircuitRow {
  name: string | null;
  key: string;
  state: string;
  sinceMs: number | null;
  calls: number;
  failures: number;
  failureRatePct: number;
  trips: number;
  forcedBy: string | null;
  forcedReason: string | null;
  forcedUntilMs: number | null;
  policy: boolean;
}

export interface Transition {
  previous: string | null;
  state: string;
  generation: number;
  reason: string;
  at: number;
  actor: string | null;
  note: string | null;
  correlationId: string | null;
}

export interface Circuit {
  name: string | null;
  key: string;
  exists: boolean;
  state: string;
  admits: boolean;
  retryAfterMs: number | null;
  generation: number;
  calls: number;
  failures: number;
  slow: number;
  failureRatePercent: number;
  slowRatePercent: number;
  failuresInARow: number;
  trips: number;
  probesOut: number;
  successes: number;
  openedAt: number | null;
  forced: { by: string | null; reason: string | null; since: number | null; until: number | null; endsIn: string | null } | null;
  version: number | null;
  config: Record<string, unknown> | null;
  transitions: Transition[];
}

export interface Denied {
  name: string | null;
  key: string;
  kind: string;
  estimate: number;
  error: number;
}

export interface Limits {
  denied: Denied[];
  limits: { policy: string; version: number | null; rateLimit: Record<string, unknown> }[];
}

export interface Peeked {
  allowed: boolean;
  limit: number;
  remaining: number;
  retryAfterMs: number | null;
  resetAfterMs: number | null;
}

export interface LockRow {
  name: string | null;
  key: string;
  state: string;
  sinceMs: number | null;
  mode: string;
  holders: number;
  owner: string | null;
  fence: number | null;
  heldMs: number | null;
  leaseLeftMs: number | null;
  waiters: number;
  oldestWaitMs: number | null;
}

export interface BulkheadRow {
  name: string | null;
  key: string;
  state: string;
  sinceMs: number | null;
  active: number;
  max: number;
  waiters: number;
  oldestWaitMs: number | null;
  heldMs: number | null;
}

export interface Held {
  key: string;
  exists: boolean;
  holders: { owner: string; fence: number | null; heldMs: number; remainingMs: number | null; mode: string | null; meta: string | null; isBound: boolean }[];
  holdersTotal: number;
  waiters: { owner: string; mode: string | null; priority: number | null; waitedMs: number }[];
  waitersTotal: number;
  lastFence: number | null;
}

export interface RunRow {
  name: string | null;
  key: string;
  state: string;
  sinceMs: number | null;
  owner: string;
  fence: number;
  attempt: number;
  runningMs: number;
  leaseLeftMs: number;
  waiters: number;
  oldestWaitMs: number;
}

export interface LoadRow {
  name: string | null;
  key: string;
  state: string;
  sinceMs: number | null;
  owner: string;
  fence: number;
  loadingMs: number;
  leaseLeftMs: number;
  waiters: number;
  oldestWaitMs: number;
}

export interface Work {
  runs: RunRow[];
  moreRuns: boolean;
  loads: LoadRow[];
  moreLoads: boolean;
  waiting: { name: string | null; key: string; kind: string; owner: string | null; waitedMs: number }[];
  held: { name: string | null; key: string; kind: string; owner: string | null; heldMs: number }[];
  calls: { id: string; upstream: string; policy: string | null; method: string; startedAt: number; attempts: number; idempotencyKey: boolean; correlationId: string | null }[];
  callsInFlight: number;
}

export interface Policy {
  name: string;
  version: number;
  document: string;
  at: number | null;
  actor: string | null;
  reason: string | null;
}

export interface Policies {
  policies: Policy[];
  file: { path: string; names: string[]; problem: string | null } | null;
}

export interface PolicyVersion {
  version: number;
  deleted: boolean;
  at: number | null;
  actor: string | null;
  reason: string | null;
}

export type Checked = { valid: true; canonical: string } | { valid: false; field: string; message: string };

export interface Diff {
  from: number | null;
  to: number | null;
  changes: { path: string; before: unknown; after: unknown }[];
}

export interface LedgerCounts {
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
}

export interface LedgerRow extends LedgerCounts {
  name: string | null;
  key: string;
  state: "running" | "paused";
  sinceMs: number | null;
  pausedUntilMs: number | null;
}

export interface Ledger {
  key: string;
  name: string | null;
  info: LedgerCounts & { pausedUntil: number | null };
  config: Record<string, unknown> | null;
}

export interface Group {
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

export interface Entry {
  id: string;
  state: string;
  attempt: number;
  lapses: number;
  deaths: number;
  reason: string | null;
  kind: string | null;
  source: string | null;
  aggregate: string | null;
  schema: number | null;
  reference: string | null;
  failureClass: string | null;
  group: string | null;
  firstError: string | null;
  lastError: string | null;
  firstAt: number | null;
  lastAt: number | null;
  diedAt: number | null;
  dueAt: number | null;
  held: boolean;
  attempts: { at: number; failureClass: string; delayMs: number | null }[];
  cases: number[];
  cut: string[];
}

export interface Bytes {
  text: string | null;
  base64: string | null;
  bytes: number;
  truncated: boolean;
}

export interface EntryDetail extends Entry {
  payload: Bytes | null;
  headers: Bytes | null;
  timeline: { at: number; what: string; text: string; case: number | null }[];
}

export interface Progress {
  phase: "running" | "verifying" | "draining" | "stopped" | "failed" | "finished";
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

export interface Case {
  case: number;
  category: "infrastructure" | "contract" | "business" | "poison";
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
  redrive: Progress | null;
}

export interface CaseProgress {
  progress: Progress | null;
  verified: boolean;
  /** Of what was given out; null before a redrive. */
  unresolved: number | null;
}

export interface DryRun {
  matched: number;
  complete: boolean;
  sample: string[];
}

export interface Alert {
  alert: number;
  kind: string;
  severity: "warning" | "critical";
  subject: string;
  count: number;
  at: number;
  seen: boolean;
}

export interface AnyAlert extends Alert {
  ledger: string | null;
  ledgerKey: string;
}

export interface LedgerAudit {
  id: number;
  at: number;
  user: string | null;
  actor: string | null;
  correlation: string | null;
  action: string;
}

export interface Audit {
  id: string;
  at: number;
  source: "gateway" | "ledger";
  type: string;
  actor: string | null;
  principal: string | null;
  spiffeId: string | null;
  correlationId: string | null;
  target: string | null;
  action: string;
  outcome: "done" | "refused";
  ledger: string | null;
}

export interface Health {
  status: Status;
  services: { service: string; status: Status; since: number | null; checkedAt: number | null; detail: string | null; probe: string }[];
  reporter: boolean;
  time: number;
}

export interface Upstream {
  name: string;
  kind: string;
  policy: string | null;
  circuitKey: string | null;
  state: string | null;
  calls: number;
  failed: number;
  refused: number;
  inFlight: number;
}
