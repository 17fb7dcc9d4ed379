// What is in flight: this gateway's own calls, runs under idempotency keys and loads of all callers, who waits, who holds something.

import { useLive } from "../lib/live";
import { link } from "../lib/route";
import { count } from "../lib/time";
import type { LoadRow, RunRow, Work } from "../lib/types";
import { Badge, Key, Panel, Running, Shown, Time } from "../ui/bits";
import { Page } from "../ui/page";
import { Table, type Column } from "../ui/table";

type Call = Work["calls"][number];
type Waiting = Work["waiting"][number];
type Holding = Work["held"][number];

const VIEWS: Record<string, string> = { lock: "locks", bulkhead: "bulkheads", policy: "circuits", dlq: "ledgers" };

function place(row: { kind: string; key: string; name: string | null }) {
  const view = VIEWS[row.kind];
  return view === undefined ? <Key value={row.key} name={row.name} /> : <a href={link([view, row.key])}><Key value={row.key} name={row.name} /></a>;
}

const calls: Column<Call>[] = [
  { id: "upstream", title: "Upstream", value: (row) => row.upstream, show: (row) => <span class="named"><span class="name">{row.upstream}</span><span class="under">{row.method}</span></span>, also: (row) => [row.method, row.id] },
  { id: "policy", title: "Policy", value: (row) => row.policy, show: (row) => (row.policy ? <a href={link(["policies", row.policy])}>{row.policy}</a> : <span class="quiet">–</span>) },
  { id: "started", title: "Started", numeric: true, value: (row) => row.startedAt, show: (row) => <Time at={row.startedAt} /> },
  { id: "attempts", title: "Attempt", numeric: true, value: (row) => row.attempts },
  { id: "idempotent", title: "Idempotency key", value: (row) => row.idempotencyKey, show: (row) => (row.idempotencyKey ? "yes" : "no") },
  { id: "correlation", title: "Correlation", value: (row) => row.correlationId, show: (row) => (row.correlationId ? <code>{row.correlationId}</code> : <span class="quiet">–</span>) },
];

/** What both have: the state, the key, who, and how long others have waited. */
function shared<Row extends RunRow | LoadRow>(title: string, at: number | undefined): { first: Column<Row>[]; last: Column<Row>[] } {
  const first: Column<Row>[] = [
    { id: "key", title, value: (row) => row.name ?? row.key, show: (row) => <Key value={row.key} name={row.name} />, also: (row) => [row.key] },
    { id: "state", title: "State", value: (row) => row.state, show: (row) => (row.state === "held" ? <Badge state="held" tone="warn" /> : <Badge state={row.state} />) },
    { id: "owner", title: "Who", value: (row) => row.owner },
  ];
  const last: Column<Row>[] = [
    { id: "lease", title: "Lease left", numeric: true, value: (row) => row.leaseLeftMs, show: (row) => <Running ms={row.leaseLeftMs} at={at} down /> },
    { id: "waiters", title: "Waiters", numeric: true, value: (row) => row.waiters, show: (row) => count(row.waiters) },
    { id: "oldest", title: "Longest wait", numeric: true, value: (row) => (row.waiters > 0 ? row.oldestWaitMs : null), show: (row) => (row.waiters > 0 ? <Running ms={row.oldestWaitMs} at={at} /> : <span class="quiet">–</span>) },
  ];
  return { first, last };
}

function runColumns(at: number | undefined): Column<RunRow>[] {
  const { first, last } = shared<RunRow>("Run", at);
  return [
    ...first,
    { id: "attempt", title: "Attempt", numeric: true, value: (row) => row.attempt },
    { id: "since", title: "Since", numeric: true, value: (row) => row.sinceMs, show: (row) => <Time at={row.sinceMs} /> },
    ...last,
  ];
}

function loadColumns(at: number | undefined): Column<LoadRow>[] {
  const { first, last } = shared<LoadRow>("Load", at);
  return [...first, { id: "since", title: "Since", numeric: true, value: (row) => row.sinceMs, show: (row) => <Time at={row.sinceMs} /> }, ...last];
}

function more(is: boolean, verb: string) {
  return is ? <span class="quiet small">and more: <code>resil {verb} list</code></span> : null;
}

export function WorkView() {
  const live = useLive<Work>("/api/work", { on: ["lost"], everyMs: 3_000 });
  const at = live.at;
  const waiting: Column<Waiting>[] = [
    { id: "key", title: "Waits for", value: (row) => row.name ?? row.key, show: place, also: (row) => [row.key] },
    { id: "kind", title: "Kind", value: (row) => row.kind },
    { id: "owner", title: "Who", value: (row) => row.owner },
    { id: "waited", title: "For", numeric: true, value: (row) => row.waitedMs, show: (row) => <Running ms={row.waitedMs} at={at} /> },
  ];
  const held: Column<Holding>[] = [
    { id: "key", title: "Holds", value: (row) => row.name ?? row.key, show: place, also: (row) => [row.key] },
    { id: "kind", title: "Kind", value: (row) => row.kind },
    { id: "owner", title: "Who", value: (row) => row.owner },
    { id: "held", title: "For", numeric: true, value: (row) => row.heldMs, show: (row) => <Running ms={row.heldMs} at={at} /> },
  ];
  return (
    <Page title="In flight" lead="Calls of this gateway; runs and loads of all callers; the longest holds and waits in the server.">
      <Shown live={live}>
        {(now) => (
          <>
            <Panel title="Calls of this gateway" aside={<span class="quiet small">{count(now.callsInFlight)} in flight</span>}>
              <Table label="Calls of this gateway" rows={now.calls} columns={calls} id={(row) => row.id} order={{ column: "started", direction: "ascending" }} empty={{ title: "No call is in flight" }} />
            </Panel>
            <Panel title="Runs under idempotency keys" aside={more(now.moreRuns, "run")}>
              <Table label="Runs under idempotency keys" rows={now.runs} columns={runColumns(at)} id={(row) => row.key} order={{ column: "since", direction: "ascending" }} empty={{ title: "Nothing runs under an idempotency key", text: "A run is listed from its begin until it is committed. One that is held waits until somebody decides what its lost runner did." }} />
            </Panel>
            <Panel title="Loads" aside={more(now.moreLoads, "load")}>
              <Table label="Loads" rows={now.loads} columns={loadColumns(at)} id={(row) => row.key} order={{ column: "since", direction: "ascending" }} empty={{ title: "Nothing is loaded", text: "A load is listed while somebody leads it for all who ask." }} />
            </Panel>
            <div class="columns">
              <Panel title="Waiting">
                <Table label="Waiting" rows={now.waiting} columns={waiting} id={(row) => `${row.kind} ${row.key} ${row.owner} ${row.waitedMs}`} order={{ column: "waited", direction: "descending" }} empty={{ title: "Nobody waits", text: "Those who wait for a run or a load of another, a lock, a place or a message are listed here." }} />
              </Panel>
              <Panel title="Held">
                <Table label="Held" rows={now.held} columns={held} id={(row) => `${row.kind} ${row.key} ${row.owner}`} order={{ column: "held", direction: "descending" }} empty={{ title: "Nothing is held" }} />
              </Panel>
            </div>
          </>
        )}
      </Shown>
    </Page>
  );
}
