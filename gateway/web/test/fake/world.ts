// What the fake gateway has: enough of everything that each view has something to show, and a life of its own when
// asked. Times hang on the start, so that two runs look the same.

import type { Alert, Audit, BulkheadRow, Case, Circuit, EntryDetail, Group, Held, LedgerAudit, LockRow, Policy, PolicyVersion, Status, Transition } from "../../src/lib/types";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

export interface Versioned {
  versions: (PolicyVersion & { document: string })[];
}

export interface FakeLedger {
  key: string;
  name: string;
  paused: number | null;
  entries: Map<string, EntryDetail>;
  cases: Case[];
  alerts: Alert[];
  audit: LedgerAudit[];
}

export type Emit = (event: string, data: Record<string, unknown>) => void;

export class World {
  readonly circuits = new Map<string, Circuit & { policy: boolean }>();
  readonly locks = new Map<string, { row: LockRow; held: Held }>();
  readonly bulkheads = new Map<string, { row: BulkheadRow; held: Held }>();
  readonly policies = new Map<string, Versioned>();
  readonly ledgers = new Map<string, FakeLedger>();
  readonly audit: Audit[] = [];
  readonly services: { service: string; status: Status; since: number; detail: string | null; probe: string }[] = [];
  redisReason: string | null = null;
  emit: Emit = () => undefined;
  private turns = 0;
  private audits = 0;

  constructor(readonly start = Date.now(), isEmpty = false) {
    if (!isEmpty) this.fill();
  }

  private fill(): void {
    const at = (msAgo: number): number => this.start - msAgo;
    this.circuit("payments", "open", { calls: 20, failures: 11, openedAt: at(9 * SECOND), retryAfterMs: 21_000, trips: 3 });
    this.circuit("inventory", "closed", { calls: 184, failures: 2, openedAt: null });
    this.circuit("search", "half-open", { calls: 6, failures: 1, openedAt: at(41 * SECOND), trips: 1, probesOut: 1, successes: 2 });
    this.circuit("mail", "forced-open", { calls: 52, failures: 0, openedAt: at(12 * MINUTE), forced: { by: "ann", reason: "provider maintenance until noon", since: at(12 * MINUTE), until: at(-48 * MINUTE), endsIn: "closed" } });
    this.circuit("recommendations", "closed", { calls: 912, failures: 31, openedAt: null });
    this.circuit("fraud-scoring", "closed", { calls: 77, failures: 9, openedAt: null, slow: 12, slowRatePercent: 16 });
    for (let each = 1; each <= 6; each++) this.circuit(`tenant-${each}`, "closed", { calls: 40 * each, failures: each % 3, openedAt: null });

    this.lock("reports", "contended", "worker-7", 5_300, 24_700, [["worker-9", 900], ["worker-2", 400]]);
    this.lock("nightly-export", "held", "exporter-1", 192_000, 108_000, []);
    this.lock("invoice/4711", "held", "billing-3", 800, 9_200, []);
    this.bulkhead("db", 10, 10, [["api-3", 1_200], ["api-5", 300]]);
    this.bulkhead("thumbnails", 3, 24, []);

    this.policy("payments", [
      [{ retry: { maxAttempts: 2 } }, "ann", "first version", 6 * 24 * HOUR],
      [{ retry: { maxAttempts: 3 }, breaker: { consecutiveFailures: 5, openFor: "30s" } }, "ben", "a breaker, after the outage of Monday", 2 * 24 * HOUR],
      [{ timeout: { attempt: "250ms", total: "2s" }, retry: { maxAttempts: 3 }, breaker: { consecutiveFailures: 5, openFor: "30s" }, rateLimit: { limit: 100, period: "1s", burst: 200 } }, "ann", "the bank limits us to 100 per second", 3 * HOUR],
    ]);
    this.policy("inventory", [[{ timeout: { attempt: "100ms" }, retry: { maxAttempts: 4, budget: { percent: 10 } } }, "cho", "as measured", 30 * 24 * HOUR]]);
    this.policy("search", [[{ bulkhead: { maxConcurrentCalls: 50 }, breaker: { consecutiveFailures: 8 } }, "ben", "shared cluster", 11 * 24 * HOUR]]);

    this.ledger("orders", 120);
    this.ledger("webhooks", 0);
    for (const [service, status, detail, probe, ago] of [
      ["payments", "unhealthy", "the circuit is open", "circuit", 9 * SECOND],
      ["inventory", "healthy", null, "grpc", 26 * HOUR],
      ["search", "degraded", "the circuit is half-open", "circuit", 41 * SECOND],
      ["mail", "healthy", null, "http", 3 * HOUR],
    ] as const) this.services.push({ service, status, detail, probe, since: at(ago) });
    this.record("policy.set", "ann", "payments", "stored version 3: the bank limits us to 100 per second", "done", 3 * HOUR);
    this.record("circuit.force", "ann", "resil:policy:{mail}", "forced open: provider maintenance until noon", "done", 12 * MINUTE);
    this.record("lock.break", "guest", "resil:lock:{reports}", "break: stuck", "refused", 4 * MINUTE);
  }

  private circuit(name: string, state: string, some: Partial<Circuit>): void {
    const key = `resil:policy:{${name}}`;
    const calls = some.calls ?? 0;
    const failures = some.failures ?? 0;
    const transitions: Transition[] = [];
    const path = state === "closed" ? [] : state === "half-open" ? ["open", "half-open"] : [state];
    let previous = "closed";
    path.forEach((next, step) => {
      transitions.push({ previous, state: next, generation: 5 + step, reason: next === "open" ? "consecutive-failures" : next.startsWith("forced") ? "forced" : "open-time-over", at: this.start - (path.length - step) * 10 * SECOND, actor: next.startsWith("forced") ? "ann" : null, note: next.startsWith("forced") ? "provider maintenance until noon" : null, correlationId: `c-${name}-${step}` });
      previous = next;
    });
    this.circuits.set(key, {
      name, key, exists: true, state, admits: !["open", "forced-open"].includes(state), retryAfterMs: null, generation: 4 + path.length, calls, failures, slow: 0,
      failureRatePercent: calls === 0 ? 0 : Math.round((failures / calls) * 100), slowRatePercent: 0, failuresInARow: state === "open" ? 5 : 0, trips: 0, probesOut: 0, successes: 0,
      openedAt: null, forced: null, version: 2, config: { consecutiveFailures: 5, openFor: "30s", window: { calls: 100 } }, transitions, policy: true, ...some,
    });
  }

  private lock(name: string, state: string, owner: string, heldMs: number, leaseLeftMs: number, waiters: [string, number][]): void {
    const key = `resil:lock:{${name}}`;
    this.locks.set(key, {
      row: { name, key, state, sinceMs: this.start - heldMs, mode: "exclusive", holders: 1, owner, fence: 12, heldMs, leaseLeftMs, waiters: waiters.length, oldestWaitMs: waiters[0]?.[1] ?? 0 },
      held: { key, exists: true, holders: [{ owner, fence: 12, heldMs, remainingMs: leaseLeftMs, mode: "exclusive", meta: null, isBound: true }], holdersTotal: 1, waiters: waiters.map(([who, waitedMs]) => ({ owner: who, mode: "exclusive", priority: null, waitedMs })), waitersTotal: waiters.length, lastFence: 12 },
    });
  }

  private bulkhead(name: string, active: number, max: number, waiters: [string, number][]): void {
    const key = `resil:bulkhead:{${name}}`;
    const holders = Array.from({ length: active }, (_, at) => ({ owner: `api-${at + 1}`, fence: null, heldMs: 120 * (at + 1), remainingMs: 5_000 - 120 * at, mode: null, meta: null, isBound: false }));
    this.bulkheads.set(key, {
      row: { name, key, state: active >= max ? "full" : "free", sinceMs: this.start - 3_000, active, max, waiters: waiters.length, oldestWaitMs: waiters[0]?.[1] ?? 0, heldMs: 120 * active },
      held: { key, exists: true, holders, holdersTotal: active, waiters: waiters.map(([owner, waitedMs]) => ({ owner, mode: null, priority: 1, waitedMs })), waitersTotal: waiters.length, lastFence: null },
    });
  }

  private policy(name: string, versions: [unknown, string, string, number][]): void {
    this.policies.set(name, { versions: versions.map(([document, actor, reason, ago], at) => ({ version: at + 1, deleted: false, at: this.start - ago, actor, reason, document: JSON.stringify(document, null, 2) })) });
  }

  storedPolicy(name: string): Policy | undefined {
    const last = this.policies.get(name)?.versions.at(-1);
    return last === undefined || last.deleted ? undefined : { name, version: last.version, document: last.document, at: last.at, actor: last.actor, reason: last.reason };
  }

  store(name: string, document: string, actor: string, reason: string, deleted = false): number {
    const versions = this.policies.get(name)?.versions ?? [];
    const version = (versions.at(-1)?.version ?? 0) + 1;
    versions.push({ version, deleted, at: Date.now(), actor, reason, document });
    this.policies.set(name, { versions });
    this.emit("policy", { key: `resil:policy:{${name}}`, name, action: deleted ? "deleted" : version === 1 ? "created" : "changed", version, actor, reason, at: Date.now() });
    return version;
  }

  private ledger(name: string, dead: number): void {
    const key = `resil:dlq:{${name}}`;
    const entries = new Map<string, EntryDetail>();
    const kinds = [["OrderCreated", "OrderCreated/timeout after <n> ms", "timeout after 3000 ms", "transient"], ["OrderCreated", "OrderCreated/no such customer <n>", "no such customer 9", "business"], ["OrderPaid", "OrderPaid/gateway said <n>", "gateway said 502", "external"]] as const;
    for (let each = 1; each <= dead; each++) {
      const [kind, group, error, failureClass] = kinds[each % 7 === 0 ? 2 : each % 3 === 0 ? 1 : 0] ?? kinds[0];
      const diedAt = this.start - each * 47 * SECOND;
      entries.set(`orders/${each}`, {
        id: `orders/${each}`, state: "dead", attempt: 6, lapses: 0, deaths: 1, reason: failureClass === "business" ? "final" : "retries", kind, source: "orders", aggregate: `o-${each % 40}`, schema: 1, reference: null, failureClass, group,
        firstError: error, lastError: error, firstAt: diedAt - 31_000, lastAt: diedAt, diedAt, dueAt: null, held: each === 4, attempts: [{ at: diedAt - 31_000, failureClass, delayMs: 500 }, { at: diedAt - 30_000, failureClass, delayMs: 2_000 }, { at: diedAt, failureClass, delayMs: null }], cases: [], cut: [],
        payload: { text: JSON.stringify({ id: each, customer: 9, total: "49.90", note: "<img src=x onerror=alert(1)>" }), base64: null, bytes: 78, truncated: false }, headers: each % 2 === 0 ? { text: null, base64: "AAECAwQF", bytes: 6, truncated: false } : null,
        timeline: [
          { at: diedAt - 31_000, what: "failed", text: `attempt 1 failed (${failureClass}), waits 500 ms`, case: null },
          { at: diedAt - 30_000, what: "failed", text: `attempt 2 failed (${failureClass}), waits 2 s`, case: null },
          { at: diedAt, what: "died", text: "died after 6 attempts", case: null },
          { at: this.start, what: "now", text: "dead", case: null },
        ],
      });
    }
    this.ledgers.set(key, {
      key, name, paused: null, entries, cases: [], audit: [],
      alerts: dead === 0 ? [] : [
        { alert: 7, kind: "many", severity: "warning", subject: "OrderCreated", count: 11, at: this.start - 14 * MINUTE, seen: false },
        { alert: 6, kind: "aggregate", severity: "critical", subject: "o-7", count: 3, at: this.start - 52 * MINUTE, seen: false },
        { alert: 5, kind: "spike", severity: "critical", subject: "OrderPaid", count: 40, at: this.start - 26 * HOUR, seen: true },
      ],
    });
  }

  groups(ledger: FakeLedger): Group[] {
    const found = new Map<string, Group>();
    for (const entry of ledger.entries.values()) {
      const name = entry.group ?? "";
      const group = found.get(name) ?? { group: name, kind: entry.kind, dead: 0, entries: 0, deaths: 0, firstAt: Infinity, lastAt: 0, sample: entry.lastError, cases: ledger.cases.filter((each) => each.groups.includes(name)).map((each) => each.case) };
      group.entries++;
      group.deaths += entry.deaths;
      if (entry.state === "dead") group.dead++;
      group.firstAt = Math.min(group.firstAt, entry.firstAt ?? Infinity);
      group.lastAt = Math.max(group.lastAt, entry.lastAt ?? 0);
      found.set(name, group);
    }
    return [...found.values()];
  }

  /** Of a case: what it is about and neither resolved nor archived. */
  unresolved(ledger: FakeLedger, it: Case): EntryDetail[] {
    return [...ledger.entries.values()].filter((entry) => it.groups.includes(entry.group ?? "") && !["resolved", "archived"].includes(entry.state));
  }

  record(type: string, actor: string | null, target: string | null, action: string, outcome: "done" | "refused", ago = 0): void {
    const audit: Audit = { id: `a-${++this.audits}`, at: Date.now() - ago, source: "gateway", type, actor, principal: "ann's laptop", spiffeId: null, correlationId: `0f3c-${this.audits}`, target, action, outcome, ledger: null };
    this.audit.unshift(audit);
    this.emit("audit", audit as unknown as Record<string, unknown>);
  }

  change(key: string, state: string, reason: string, actor: string | null = null, note: string | null = null): void {
    const circuit = this.circuits.get(key);
    if (!circuit || circuit.state === state) return;
    const transition: Transition = { previous: circuit.state, state, generation: circuit.generation + 1, reason, at: Date.now(), actor, note, correlationId: `c-${circuit.generation}` };
    this.emit("circuit", { key, name: circuit.name, previousGeneration: circuit.generation, ...transition });
    Object.assign(circuit, { state, admits: !["open", "forced-open"].includes(state), generation: circuit.generation + 1, openedAt: state === "open" ? Date.now() : circuit.openedAt, retryAfterMs: state === "open" ? 30_000 : null });
    circuit.transitions = [...circuit.transitions, transition].slice(-50);
  }

  /** One turn of the workers: redrives go on, ten entries at a time. */
  work(): void {
    for (const ledger of this.ledgers.values()) {
      for (const it of ledger.cases) {
        const redrive = it.redrive;
        if (!redrive || !["running", "verifying", "draining"].includes(redrive.phase) || ledger.paused !== null) continue;
        const left = this.unresolved(ledger, it).filter((entry) => entry.state === "dead" && entry.cases.includes(it.case));
        for (const entry of left.slice(0, 10)) {
          entry.state = "resolved";
          entry.timeline = [...entry.timeline.slice(0, -1), { at: Date.now(), what: "redriven", text: `redriven under case ${it.case}`, case: it.case }, { at: Date.now(), what: "resolved", text: "handled", case: null }];
          redrive.given++;
          redrive.resolved++;
        }
        redrive.phase = left.length <= 10 ? "finished" : redrive.given >= redrive.first ? "running" : "verifying";
      }
    }
  }

  /** A lively quarter of a second. */
  live(): void {
    this.work();
    this.turns++;
    if (this.turns % 8 === 0) {
      const circuits = [...this.circuits.values()].filter((each) => each.forced === null && each.name?.startsWith("tenant"));
      const one = circuits[(this.turns / 8) % circuits.length];
      if (one) this.change(one.key, one.state === "closed" ? "open" : one.state === "open" ? "half-open" : "closed", one.state === "closed" ? "consecutive-failures" : "probes");
    }
  }
}
