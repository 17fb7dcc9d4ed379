import assert from "node:assert/strict";
import { test } from "node:test";
import { folded, lineOf, lines } from "../../src/lib/diff";
import { extended, loading, opened } from "../../src/lib/pages";
import { body, leastMs, refusal, stepOf, wrongNumber } from "../../src/lib/redrive";
import { may, whyNot } from "../../src/lib/roles";
import { api, link, parse } from "../../src/lib/route";
import { matches, sorted, turned } from "../../src/lib/rows";
import { bytes, count, exact, parseSpan, relative, span } from "../../src/lib/time";
import type { CaseProgress, Progress } from "../../src/lib/types";

test("spans have at most two units", () => {
  const shown = [0, 300, 4_250, 42_000, 61_000, 59 * 60_000, 3 * 3_600_000 + 10 * 60_000, 52 * 3_600_000, 40 * 86_400_000].map(span);
  assert.deepEqual(shown, ["0 ms", "300 ms", "4.2 s", "42 s", "1 min 1 s", "59 min", "3 h 10 min", "2 d 4 h", "40 d"]);
  assert.equal(span(-5), "0 s");
});

test("moments are shown relative to now, before and after", () => {
  const now = 1_763_460_000_000;
  assert.deepEqual([now, now - 1_500, now - 42_900, now + 300_000, now - 7_200_000].map((at) => relative(at, now)), ["now", "now", "42 s ago", "in 5 min", "2 h ago"]);
  assert.match(exact(now), /^2025-11-18 \d\d:\d\d:00\.000 UTC/);
});

test("a span that is typed needs a unit", () => {
  assert.deepEqual(["30s", " 5 m", "2h", "250ms", "1.5s", "30", "s", "-1s", "0s"].map(parseSpan), [30_000, 300_000, 7_200_000, 250, 1_500, undefined, undefined, undefined, undefined]);
});

test("numbers and sizes are grouped", () => {
  assert.equal(count(1_234_567), "1\u202f234\u202f567");
  assert.deepEqual([12, 2_048, 20_480, 5_242_880].map(bytes), ["12 B", "2.0 KiB", "20 KiB", "5.0 MiB"]);
});

test("rows sort stably, names by their numbers, unknown last", () => {
  const rows = [{ name: "t-10", at: null }, { name: "t-2", at: 5 }, { name: "T-2", at: 1 }];
  assert.deepEqual(sorted(rows, (row) => row.name, "ascending").map((row) => row.name), ["t-2", "T-2", "t-10"]);
  assert.deepEqual(sorted(rows, (row) => row.at, "descending").map((row) => row.at), [5, 1, null]);
  assert.deepEqual(sorted(rows, (row) => row.at, "ascending").map((row) => row.at), [1, 5, null]);
  assert.equal(rows[0]?.name, "t-10", "the given rows stay as they are");
});

test("a column turns its order, and starts with its own", () => {
  assert.deepEqual(turned(undefined, "a", "descending"), { column: "a", direction: "descending" });
  assert.deepEqual(turned({ column: "a", direction: "descending" }, "a", "descending"), { column: "a", direction: "ascending" });
  assert.deepEqual(turned({ column: "a", direction: "descending" }, "b", "ascending"), { column: "b", direction: "ascending" });
});

test("a filter needs every word and none that is excluded", () => {
  assert.ok(matches(["payments", "open", 12], "PAY open"));
  assert.ok(!matches(["payments", "open"], "pay closed"));
  assert.ok(!matches(["payments", "open"], "pay -open"));
  assert.ok(matches([null, "x"], "  "));
});

test("a difference keeps, removes and adds lines", () => {
  const found = lines("a\nb\nc\n", "a\nx\nc\nd\n");
  assert.deepEqual(found.map((line) => [line.kind, line.text]), [["same", "a"], ["removed", "b"], ["added", "x"], ["same", "c"], ["added", "d"]]);
  assert.deepEqual(found.map((line) => [line.before, line.after]), [[1, 1], [2, null], [null, 2], [3, 3], [null, 4]]);
  assert.deepEqual(lines("", "a").map((line) => line.kind), ["added"]);
});

test("applying a difference to any text gives the other", () => {
  const seed = Number(process.env["RESIL_SEED"] ?? Date.now());
  let state = seed >>> 0;
  const next = (below: number): number => ((state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) >>> 8) % below;
  for (let turn = 0; turn < 300; turn++) {
    const text = (): string[] => Array.from({ length: 1 + next(12) }, () => "abcd"[next(4)] ?? "");
    const before = text();
    const after = text();
    const found = lines(before.join("\n"), after.join("\n"));
    assert.deepEqual(found.filter((line) => line.kind !== "added").map((line) => line.text), before, `RESIL_SEED=${seed}`);
    assert.deepEqual(found.filter((line) => line.kind !== "removed").map((line) => line.text), after, `RESIL_SEED=${seed}`);
  }
});

test("quiet parts of a difference are folded", () => {
  const before = Array.from({ length: 20 }, (_, at) => `line ${at}`);
  const after = before.map((line, at) => (at === 10 ? "changed" : line));
  const shown = folded(lines(before.join("\n"), after.join("\n")), 2);
  assert.deepEqual(shown.map((line) => line?.kind ?? null), [null, "same", "same", "removed", "added", "same", "same", null]);
});

test("a field is found in JSON and in YAML", () => {
  assert.equal(lineOf('{\n  "timeout": {},\n  "retry": {\n    "maxAttempts": 0\n  }\n}', "retry.maxAttempts"), 4);
  assert.equal(lineOf("retry:\n  max_attempts: 0\n", "retry.maxAttempts"), 2);
  assert.equal(lineOf("{}", "document"), undefined);
});

test("pages are joined without repeats, late replies are dropped", () => {
  type Row = { id: string; n: number };
  const id = (row: Row): string => row.id;
  let list = extended(opened<Row>("q"), "q", { rows: [{ id: "a", n: 1 }, { id: "b", n: 1 }], cursor: "2" }, id);
  assert.equal(list.next, "2");
  list = loading(list);
  assert.equal(extended(list, "other", { rows: [{ id: "z", n: 1 }], cursor: null }, id), list);
  list = extended(list, "q", { rows: [{ id: "b", n: 2 }, { id: "c", n: 1 }], cursor: null }, id);
  assert.deepEqual(list.rows, [{ id: "a", n: 1 }, { id: "b", n: 2 }, { id: "c", n: 1 }]);
  assert.deepEqual([list.next, list.isLoading, list.pages], [null, false, 2]);
});

test("addresses keep keys as one segment", () => {
  const key = "resil:dlq:{a/b?c#d %}";
  assert.deepEqual(parse(link(["ledgers", key, "entries"], { state: "dead", kind: "" })).parts, ["ledgers", key, "entries"]);
  assert.equal(parse(link(["ledgers"], { state: "dead" })).query.get("state"), "dead");
  assert.equal(api(["ledgers", "a/b"], { limit: 5, cursor: null }), "/api/ledgers/a%2Fb?limit=5");
  assert.deepEqual(parse("#/%E0%A4%A/x").parts, ["%E0%A4%A", "x"], "what cannot be decoded stays");
});

test("a role includes lower ones, and a refusal names it", () => {
  assert.ok(may("govern", "operate") && may("operate", "operate") && !may("look", "operate") && !may(null, "look"));
  assert.equal(whyNot("govern", "look"), null);
  assert.match(whyNot("look", "govern") ?? "", /needs the role govern.*has look/i);
});

const progress = (phase: Progress["phase"], verified = false): CaseProgress => ({
  verified,
  unresolved: verified ? 0 : 3,
  progress: { phase, startedAt: 0, rate: { count: 1, periodMs: 1 }, first: 1, oneshot: false, auto: false, given: 0, resolved: 0, died: 0, active: 0 },
});

test("the server's phase decides the step of a redrive", () => {
  assert.equal(stepOf("dry run", undefined, false), "dry run");
  assert.equal(stepOf("filter", progress("running"), false), "progress");
  assert.equal(stepOf("filter", progress("failed"), false), "progress");
  assert.equal(stepOf("filter", progress("stopped"), true), "filter", "what is left can be redriven again");
  assert.equal(stepOf("filter", progress("running"), true), "progress");
  assert.equal(stepOf("filter", progress("finished", true), true), "verified");
  assert.equal(stepOf("progress", { progress: null, verified: false, unresolved: 2 }, false), "rate");
});

test("what a redrive sends has only what was filled in", () => {
  const rate = { count: "100", periodMs: 60_000, first: "10", oneshot: false };
  assert.deepEqual(body({ id: "", kind: " OrderPaid ", aggregate: "", count: "5" }, rate), { kind: "OrderPaid", count: 5, rate: { count: 100, periodMs: 60_000 }, first: 10, oneshot: false });
  assert.equal(leastMs(101, rate), 60_000);
  assert.match(refusal({ category: "poison", closedAt: null }) ?? "", /discarded/);
  assert.equal(refusal({ category: "contract", closedAt: null }), null);
  assert.deepEqual([wrongNumber("5", 1, 10), wrongNumber("0", 1, 10) === null, wrongNumber("1e3", 1, 10_000) === null], [null, false, false]);
});
