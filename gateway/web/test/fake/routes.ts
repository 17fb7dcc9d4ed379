// The routes of docs/gateway-api.md over the world.

import type { Case, EntryDetail, Role } from "../../src/lib/types";
import { may } from "../../src/lib/roles";
import type { FakeLedger, World } from "./world";

export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly more: Record<string, unknown> = {},
  ) {
    super(detail);
  }

  get title(): string {
    return { 400: "Invalid request", 401: "Not logged in", 403: "Not allowed", 404: "Not found", 409: "Conflict", 429: "Too many requests", 503: "Unavailable" }[this.status] ?? "Error";
  }
}

export interface Ask {
  method: string;
  parts: string[];
  query: URLSearchParams;
  body: Record<string, unknown>;
  role: Role;
}

export function respond(world: World, ask: Ask): unknown {
  const { parts, method } = ask;
  const isPost = method === "POST";
  switch (parts[0]) {
    case "overview":
      return overview(world);
    case "circuits":
      return circuits(world, ask);
    case "limits":
      return limits(world, ask);
    case "locks":
    case "bulkheads":
      return held(world, ask);
    case "work":
      return work(world);
    case "policies":
      return policies(world, ask);
    case "ledgers":
      return parts[1] === undefined ? { ledgers: [...world.ledgers.values()].map((each) => ledgerRow(world, each)) } : ledger(world, ask, found(world.ledgers.get(parts[1]), "ledger"));
    case "alerts":
      return { alerts: [...world.ledgers.values()].flatMap((each) => each.alerts.map((alert) => ({ ledger: each.name, ledgerKey: each.key, ...alert }))).filter((alert) => ask.query.get("seen") === "true" || !alert.seen) };
    case "audit":
      return { audit: world.audit.slice(0, Number(ask.query.get("limit") ?? 200)) };
    case "health":
      return { status: worst(world), services: world.services.map((each) => ({ ...each, checkedAt: Date.now() - 2_000 })), reporter: true, time: Date.now() };
    case "upstreams":
      return { upstreams: [["payments", "grpc", 120, 11], ["inventory", "http", 1_840, 3], ["search", "http", 610, 7]].map(([name, kind, calls, failed]) => ({ name, kind, policy: name, circuitKey: `resil:policy:{${name}}`, state: world.circuits.get(`resil:policy:{${name}}`)?.state ?? null, calls, failed, refused: name === "payments" ? 38 : 0, inFlight: 1 })) };
    default:
      throw new Refusal(404, "NOT_FOUND", `No such route: ${isPost ? "POST" : "GET"} ${parts.join("/")}`);
  }
}

function found<Thing>(thing: Thing | undefined, what: string): Thing {
  if (thing === undefined) throw new Refusal(404, "NOT_FOUND", `There is no such ${what}.`);
  return thing;
}

function needs(ask: Ask, role: Role, asksReason = true): { actor: string; reason: string } {
  if (!may(ask.role, role)) throw new Refusal(403, "FORBIDDEN", `This needs the role ${role}.`, { needs: role });
  const { actor, reason } = ask.body;
  if (typeof actor !== "string" || actor === "") throw new Refusal(400, "INVALID_ARGUMENT", "actor must have 1 to 128 bytes", { field: "actor" });
  if (asksReason && (typeof reason !== "string" || reason === "")) throw new Refusal(400, "INVALID_ARGUMENT", "reason must have 1 to 256 bytes", { field: "reason" });
  return { actor, reason: String(reason ?? "") };
}

const worst = (world: World): string => (world.services.some((each) => each.status !== "healthy") ? "degraded" : "healthy");

function overview(world: World): unknown {
  const circuits = [...world.circuits.values()];
  const ledgers = [...world.ledgers.values()].map((each) => ledgerRow(world, each));
  const sum = (name: "dead" | "casesOpen" | "alertsUnseen"): number => ledgers.reduce((all, each) => all + each[name], 0);
  return {
    circuits: { total: circuits.length, open: circuits.filter((each) => each.state.endsWith("open") && each.state !== "half-open").length, halfOpen: circuits.filter((each) => each.state === "half-open").length, forced: circuits.filter((each) => each.forced).length },
    locks: { held: world.locks.size, contended: [...world.locks.values()].filter((each) => each.row.state === "contended").length, waiters: [...world.locks.values()].reduce((all, each) => all + each.row.waiters, 0) },
    bulkheads: { total: world.bulkheads.size, full: [...world.bulkheads.values()].filter((each) => each.row.state === "full").length },
    policies: { live: world.policies.size },
    deadLetters: { ledgers: ledgers.length, dead: sum("dead"), casesOpen: sum("casesOpen"), alertsUnseen: sum("alertsUnseen") },
    denied: { topEstimate: world.circuits.size === 0 ? 0 : 320 },
    health: { status: worst(world), services: world.services.length },
    redis: { status: world.redisReason === null ? "healthy" : "unhealthy", reason: world.redisReason, since: null },
    calls: { inFlight: 3, total: 10_231, failed: 12, refused: 40 },
    serverNow: Date.now(),
  };
}

function circuits(world: World, ask: Ask): unknown {
  const [, key, verb] = ask.parts;
  if (key === undefined) {
    return { circuits: [...world.circuits.values()].map((each) => ({ name: each.name, key: each.key, state: each.state, sinceMs: each.transitions.at(-1)?.at ?? world.start - 3_600_000, calls: each.calls, failures: each.failures, failureRatePct: each.failureRatePercent, trips: each.trips, forcedBy: each.forced?.by ?? null, forcedReason: each.forced?.reason ?? null, forcedUntilMs: each.forced ? (each.forced.until ?? -1) : null, policy: each.policy })) };
  }
  const circuit = found(world.circuits.get(key), "circuit");
  if (verb === undefined) return circuit;
  const who = needs(ask, "operate");
  if (verb === "reset") {
    Object.assign(circuit, { calls: 0, failures: 0, failureRatePercent: 0, trips: 0, forced: null });
    world.change(key, "closed", "reset", who.actor, who.reason);
    world.record("circuit.reset", who.actor, key, `reset: ${who.reason}`, "done");
    return { reset: true };
  }
  const state = String(ask.body["state"]);
  const forMs = ask.body["forMs"] as number | undefined;
  if (state === "open-then-probe" && forMs === undefined) throw new Refusal(400, "INVALID_ARGUMENT", "open-then-probe needs forMs", { field: "forMs" });
  const now = state === "auto" ? "closed" : state === "open" || state === "open-then-probe" ? "forced-open" : state === "closed" ? "forced-closed" : state;
  circuit.forced = state === "auto" ? null : { by: who.actor, reason: who.reason, since: Date.now(), until: forMs === undefined ? null : Date.now() + forMs, endsIn: "closed" };
  world.change(key, now, "forced", who.actor, who.reason);
  world.record("circuit.force", who.actor, key, `forced ${state}: ${who.reason}`, "done");
  return { state: now };
}

function limits(world: World, ask: Ask): unknown {
  if (ask.parts[1] === "peek") return { allowed: ask.query.get("subject") !== "u42", limit: Number(ask.query.get("limit")), remaining: 7, retryAfterMs: null, resetAfterMs: 300 };
  if (world.circuits.size === 0) return { denied: [], limits: [] };
  return {
    denied: [["limit", "resil:limit:api:{u42}", 320, 12], ["limit", "resil:limit:api:{u7}", 96, 12], ["policy", "resil:policy:{payments}", 38, 4], ["bulkhead", "resil:bulkhead:{db}", 21, 4], ["lock", "resil:lock:{reports}", 6, 1]].map(([kind, key, estimate, error]) => ({ name: null, key, kind, estimate, error })),
    limits: [{ policy: "payments", version: 3, rateLimit: { limit: 100, period: "1s", burst: 200 } }],
  };
}

function held(world: World, ask: Ask): unknown {
  const [kind, key, verb] = ask.parts;
  const all = kind === "locks" ? world.locks : world.bulkheads;
  if (key === undefined) return { [kind ?? ""]: [...all.values()].map((each) => each.row) };
  const one = all.get(key);
  if (verb === "break") {
    const who = needs(ask, "operate");
    found(one, "lock");
    world.emit("lost", { kind: "lock", key, owner: world.locks.get(key)?.row.owner ?? null, fence: 12, reason: "broken", at: Date.now() });
    world.locks.delete(key);
    world.record("lock.break", who.actor, key, `broken: ${who.reason}`, "done");
    return { broken: 1 };
  }
  return one?.held ?? { key, exists: false, holders: [], holdersTotal: 0, waiters: [], waitersTotal: 0, lastFence: 12 };
}

function work(world: World): unknown {
  if (world.circuits.size === 0) return { waiting: [], held: [], runs: [], moreRuns: false, loads: [], moreLoads: false, calls: [], callsInFlight: 0 };
  return {
    waiting: [{ name: null, key: "resil:idemp:pay:{c-1009}", kind: "idempotency", owner: "api-2", waitedMs: 1_200 }, { name: null, key: "resil:flight:{catalogue}", kind: "flight", owner: "api-4", waitedMs: 300 }, { name: "reports", key: "resil:lock:{reports}", kind: "lock", owner: "worker-9", waitedMs: 900 }],
    held: [...world.locks.values()].map(({ row }) => ({ name: row.name, key: row.key, kind: "lock", owner: row.owner, heldMs: row.heldMs })),
    runs: [
      { name: null, key: "resil:idemp:pay:{c-1009}", state: "contended", sinceMs: Date.now() - 4_100, owner: "api-1", fence: 40, attempt: 1, runningMs: 4_100, leaseLeftMs: 25_900, waiters: 1, oldestWaitMs: 1_200 },
      { name: null, key: "resil:idemp:pay:{c-0997}", state: "held", sinceMs: Date.now() - 640_000, owner: "api-3", fence: 31, attempt: 1, runningMs: 0, leaseLeftMs: 0, waiters: 0, oldestWaitMs: 0 },
    ],
    moreRuns: false,
    loads: [{ name: null, key: "resil:cache:catalogue:{all}", state: "loading", sinceMs: Date.now() - 300, owner: "api-2", fence: 7, loadingMs: 300, leaseLeftMs: 9_700, waiters: 0, oldestWaitMs: 0 }],
    moreLoads: true,
    calls: [["7f2a", "payments", "POST /pay", 2, true], ["7f31", "inventory", "resil.Inventory/Reserve", 1, false]].map(([id, upstream, method, attempts, idempotencyKey]) => ({ id, upstream, policy: upstream, method, startedAt: Date.now() - 1_400, attempts, idempotencyKey, correlationId: `c-${id}` })),
    callsInFlight: 2,
  };
}

function checked(document: string): { valid: true; canonical: string } | { valid: false; field: string; message: string } {
  let parsed: { retry?: { maxAttempts?: number } };
  try {
    parsed = JSON.parse(document) as typeof parsed;
  } catch {
    return { valid: false, field: "document", message: "is neither JSON nor YAML" };
  }
  const attempts = parsed.retry?.maxAttempts;
  if (attempts !== undefined && (attempts < 1 || attempts > 100)) return { valid: false, field: "retry.maxAttempts", message: `must be from 1 to 100, got ${attempts}` };
  return { valid: true, canonical: JSON.stringify(parsed) };
}

function flat(value: unknown, path = ""): Map<string, unknown> {
  if (value === null || typeof value !== "object") return new Map([[path, value]]);
  return new Map(Object.entries(value).flatMap(([name, inner]) => [...flat(inner, path === "" ? name : `${path}.${name}`)]));
}

function policies(world: World, ask: Ask): unknown {
  const [, name, verb, number] = ask.parts;
  const { body } = ask;
  if (name === undefined) {
    const list = [...world.policies.keys()].flatMap((each) => world.storedPolicy(each) ?? []);
    return { policies: list, file: world.policies.size === 0 ? null : { path: "policies.yaml", names: ["default"], problem: null } };
  }
  if (name === "check" && ask.method === "POST") return checked(String(body["document"]));
  const versions = world.policies.get(name)?.versions ?? [];
  const stored = world.storedPolicy(name);
  if (verb === "history") return { versions: versions.map(({ document: _, ...version }) => version).reverse() };
  if (verb === "versions") return { name, ...found(versions.find((each) => each.version === Number(number)), "version") };
  if (ask.method === "GET") return found(stored, "policy");
  const textOf = (version: unknown): string => versions.find((each) => each.version === version)?.document ?? "{}";
  if (verb === "diff") {
    const before = flat(JSON.parse(body["against"] === undefined ? (stored?.document ?? "{}") : textOf(body["against"])));
    const after = flat(JSON.parse(body["version"] === undefined ? String(body["document"]) : textOf(body["version"])));
    const paths = [...new Set([...before.keys(), ...after.keys()])].filter((path) => path !== "" && before.get(path) !== after.get(path));
    return { from: stored?.version ?? null, to: body["version"] ?? null, changes: paths.map((path) => ({ path, before: before.get(path) ?? null, after: after.get(path) ?? null })) };
  }
  const who = needs(ask, "govern");
  const expected = body["expectedVersion"];
  if (expected !== undefined && expected !== (stored?.version ?? 0)) throw new Refusal(409, "VERSION_CONFLICT", `The stored version is ${stored?.version ?? 0}, not ${String(expected)}.`);
  if (verb === "rollback") return { version: world.store(name, textOf(body["version"]), who.actor, who.reason), action: "changed" };
  if (verb === "delete") return { version: world.store(name, stored?.document ?? "{}", who.actor, who.reason, true), action: "deleted" };
  const check = checked(String(body["document"]));
  if (!check.valid) throw new Refusal(400, "INVALID_POLICY", `${check.field} ${check.message}`, { field: check.field });
  const version = world.store(name, JSON.stringify(JSON.parse(check.canonical), null, 2), who.actor, who.reason);
  world.record("policy.set", who.actor, name, `stored version ${version}: ${who.reason}`, "done");
  return { version, action: version === 1 ? "created" : "changed" };
}

function counts(world: World, ledger: FakeLedger) {
  const all = [...ledger.entries.values()];
  const of = (state: string): number => all.filter((entry) => entry.state === state).length;
  return { waiting: of("waiting"), taken: of("taken"), parked: of("parked"), dead: of("dead"), resolved: of("resolved"), archived: of("archived"), held: all.filter((entry) => entry.held).length, entries: all.length, bytes: all.length * 512, groups: world.groups(ledger).length, casesOpen: ledger.cases.filter((each) => each.closedAt === null).length, alertsUnseen: ledger.alerts.filter((each) => !each.seen).length };
}

function ledgerRow(world: World, ledger: FakeLedger) {
  return { name: ledger.name, key: ledger.key, state: ledger.paused === null ? "running" : "paused", sinceMs: null, ...counts(world, ledger), pausedUntilMs: ledger.paused };
}

function ledger(world: World, ask: Ask, it: FakeLedger): unknown {
  const [, , what, id, verb] = ask.parts;
  const note = (actor: string, action: string): void => {
    it.audit.unshift({ id: it.audit.length + 1, at: Date.now(), user: "default", actor, correlation: null, action });
    world.record(`ledger.${what}`, actor, it.key, action, "done");
  };
  switch (what) {
    case undefined:
      return { key: it.key, name: it.name, info: { ...counts(world, it), pausedUntil: it.paused }, config: { transient: { retries: 5 }, business: { retries: 3 }, rateMax: 1000 } };
    case "groups":
      return { groups: world.groups(it) };
    case "entries":
      return id === undefined ? entries(it, ask.query) : found(it.entries.get(id), "entry");
    case "alerts": {
      if (id === undefined) return { alerts: it.alerts };
      const who = needs(ask, "operate", false);
      const alert = found(it.alerts.find((each) => each.alert === Number(id)), "alert");
      alert.seen = true;
      note(who.actor, `seen alert ${id}`);
      return { seen: true };
    }
    case "audit":
      return { audit: it.audit };
    case "hold": {
      const who = needs(ask, "operate");
      const chosen = [...it.entries.values()].filter((entry) => entry.id === ask.body["id"] || entry.aggregate === ask.body["aggregate"]);
      for (const entry of chosen) entry.held = ask.body["on"] === true;
      note(who.actor, `hold ${String(ask.body["on"])}: ${who.reason}`);
      return { count: chosen.length };
    }
    case "pause": {
      const who = needs(ask, "operate");
      it.paused = ask.body["paused"] === true ? Date.now() + Number(ask.body["forMs"] ?? 600_000) : null;
      note(who.actor, it.paused === null ? `resume: ${who.reason}` : `pause: ${who.reason}`);
      return { ok: true };
    }
    case "cases":
      return cases(world, ask, it, id, verb, note);
    default:
      throw new Refusal(404, "NOT_FOUND", "No such route.");
  }
}

function entries(it: FakeLedger, query: URLSearchParams): unknown {
  const limit = Number(query.get("limit") ?? 50);
  const from = Number(query.get("cursor") ?? 0);
  const names: Record<string, keyof EntryDetail> = { state: "state", kind: "kind", failureClass: "failureClass", group: "group", aggregate: "aggregate" };
  const all = [...it.entries.values()].filter((entry) => Object.entries(names).every(([name, field]) => !query.has(name) || entry[field] === query.get(name)) && (!query.has("case") || entry.cases.includes(Number(query.get("case")))));
  const page = all.slice(from, from + limit).map(({ payload: _, headers: __, timeline: ___, ...entry }) => entry);
  return { entries: page, cursor: from + limit < all.length ? String(from + limit) : null };
}

function cases(world: World, ask: Ask, it: FakeLedger, id: string | undefined, verb: string | undefined, note: (actor: string, action: string) => void): unknown {
  const { body } = ask;
  if (id === undefined) {
    if (ask.method === "GET") return { cases: it.cases };
    const who = needs(ask, "govern", false);
    if (body["category"] === "business" && !body["decision"]) throw new Refusal(400, "INVALID_ARGUMENT", "category business needs a decision", { field: "decision" });
    const made: Case = { case: it.cases.length + 1, category: body["category"] as Case["category"], cause: String(body["cause"]), fix: String(body["fix"]), decision: (body["decision"] as string | null) ?? null, groups: body["groups"] as string[], user: "default", actor: who.actor, openedAt: Date.now(), closedAt: null, discarded: false, autoUntil: typeof body["autoMs"] === "number" ? Date.now() + body["autoMs"] : null, redrive: null };
    it.cases.push(made);
    note(who.actor, `diagnose case ${made.case}: ${made.cause}`);
    return { case: made.case };
  }
  const one = found(it.cases.find((each) => each.case === Number(id)), "case");
  const left = world.unresolved(it, one);
  const matched = left.filter((entry) => entry.state === "dead" && (!body["kind"] || entry.kind === body["kind"]) && (!body["aggregate"] || entry.aggregate === body["aggregate"]) && (!body["id"] || entry.id === body["id"])).slice(0, Number(body["count"] ?? 1e9));
  switch (verb) {
    case undefined:
      return one;
    case "progress":
      return { progress: one.redrive, verified: one.redrive?.phase === "finished" && left.length === 0, unresolved: one.redrive === null ? null : left.length };
    case "dry-run":
      return { matched: matched.length, complete: true, sample: matched.slice(0, 5).map((entry) => entry.id) };
    case "redrive": {
      const who = needs(ask, "govern", false);
      if (one.redrive && ["running", "verifying", "draining"].includes(one.redrive.phase)) throw new Refusal(409, "REDRIVE_REFUSED", "A redrive of this case is under way.", { reason: "running" });
      const rate = body["rate"] as { count: number; periodMs: number };
      if (rate.count > 1_000 && rate.periodMs <= 60_000) throw new Refusal(409, "REDRIVE_REFUSED", "The rate is above 1000 per minute.", { reason: "rate" });
      for (const entry of matched) entry.cases = [...entry.cases, one.case];
      one.redrive = { phase: "verifying", startedAt: Date.now(), rate, first: Number(body["first"]), oneshot: body["oneshot"] === true, auto: false, given: 0, resolved: 0, died: 0, active: 0 };
      note(who.actor, `redrive case ${one.case}: ${matched.length} entries, ${rate.count} per ${rate.periodMs}ms`);
      return { matched: matched.length, complete: true, sample: [] };
    }
    case "stop": {
      const who = needs(ask, "operate", false);
      if (one.redrive) one.redrive.phase = "stopped";
      note(who.actor, `stop case ${one.case}`);
      return { progress: one.redrive };
    }
    case "close": {
      const who = needs(ask, "govern", false);
      if (left.length > 0 && body["discard"] !== true) throw new Refusal(409, "UNRESOLVED", `${left.length} entries are not resolved.`);
      for (const entry of left) entry.state = "archived";
      Object.assign(one, { closedAt: Date.now(), discarded: body["discard"] === true });
      note(who.actor, `close case ${one.case}`);
      return { closed: true, unresolved: 0 };
    }
    default:
      throw new Refusal(404, "NOT_FOUND", "No such route.");
  }
}
