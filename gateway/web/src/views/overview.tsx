// The first page: is anything wrong, and where.

import type { ComponentChildren } from "preact";
import { useLive } from "../lib/live";
import { link } from "../lib/route";
import { hear } from "../lib/store";
import { count, plural } from "../lib/time";
import type { AnyAlert, CircuitRow, Overview, Transition, Upstream } from "../lib/types";
import { Badge, Empty, Key, Meter, Panel, Shown, Time, toneOf, type Tone } from "../ui/bits";
import { Page } from "../ui/page";
import { Table, type Column } from "../ui/table";
import { useEffect, useState } from "preact/hooks";

interface Seen extends Transition {
  key: string;
  name: string | null;
}

/** Transitions since this page was opened in this tab; the newest first. */
const seen: Seen[] = [];
hear(({ event, data }) => {
  if (event !== "circuit") return;
  seen.unshift(data as unknown as Seen);
  seen.length = Math.min(seen.length, 30);
});

export function OverviewView() {
  const overview = useLive<Overview>("/api/overview", { on: ["circuit", "dead", "alert", "health", "policy", "lost"] });
  return (
    <Page title="Overview">
      <Shown live={overview} rows={6}>
        {(now) => (
          <>
            <div class="tiles">
              <Tile title="Health" href={link(["health"])} state={now.health.status} value={now.health.status} note={`${plural(now.health.services, "service")} · Redis ${now.redis.status}`} />
              <Tile title="Circuits" href={link(["circuits"])} state={now.circuits.open > 0 ? "open" : now.circuits.halfOpen > 0 ? "half-open" : "closed"} value={now.circuits.open > 0 ? `${count(now.circuits.open)} open` : now.circuits.halfOpen > 0 ? `${count(now.circuits.halfOpen)} half-open` : "all closed"} note={`${count(now.circuits.total)} in all · ${count(now.circuits.forced)} forced`} />
              <Tile title="Dead letters" href={link(["ledgers"])} state={now.deadLetters.dead > 0 ? "dead" : "healthy"} value={count(now.deadLetters.dead)} note={`${plural(now.deadLetters.ledgers, "ledger")} · ${plural(now.deadLetters.casesOpen, "open case")}`} />
              <Tile title="Alerts" href={link(["alerts"])} state={now.deadLetters.alertsUnseen > 0 ? "warning" : "healthy"} value={`${count(now.deadLetters.alertsUnseen)} unseen`} note="of all ledgers" />
              <Tile title="Locks" href={link(["locks"])} state={now.locks.contended > 0 ? "contended" : "free"} value={`${count(now.locks.held)} held`} note={`${count(now.locks.contended)} contended · ${plural(now.locks.waiters, "waiter")}`} />
              <Tile title="Bulkheads" href={link(["bulkheads"])} state={now.bulkheads.full > 0 ? "full" : "free"} value={now.bulkheads.full > 0 ? `${count(now.bulkheads.full)} full` : "none full"} note={`${count(now.bulkheads.total)} in all`} />
              <Tile title="Refused most" href={link(["limits"])} state={now.denied.topEstimate > 0 ? "warning" : "free"} value={`≈ ${count(now.denied.topEstimate)}`} note="for one key, in the last minute" />
              <Tile title="Calls" href={link(["work"])} state={now.calls.inFlight > 0 ? "held" : ""} value={`${count(now.calls.inFlight)} in flight`} note={`${count(now.calls.total)} since the start · ${count(now.calls.failed)} failed · ${count(now.calls.refused)} refused`} />
            </div>
          </>
        )}
      </Shown>
      <div class="columns">
        <Troubled />
        <LatestAlerts />
      </div>
      <Upstreams />
      <Happening />
    </Page>
  );
}

function Tile({ title, href, value, note, state }: { title: string; href: string; value: ComponentChildren; note: string; state: string }) {
  const tone: Tone = toneOf(state);
  return (
    <a class={`tile ${tone}`} href={href}>
      <span class="tile-title">{title}</span>
      <span class="tile-value">{value}</span>
      <span class="tile-note">{note}</span>
    </a>
  );
}

function Troubled() {
  const live = useLive<{ circuits: CircuitRow[] }>("/api/circuits", { on: ["circuit"] });
  return (
    <Panel title="Circuits that are not closed">
      <Shown live={live} rows={3}>
        {({ circuits }) => {
          const rows = circuits.filter((row) => row.state !== "closed").slice(0, 8);
          if (rows.length === 0) return <Empty title="All circuits are closed" />;
          return (
            <ul class="list">
              {rows.map((row) => (
                <li key={row.key}>
                  <a href={link(["circuits", row.key])}>
                    <Key value={row.key} name={row.name} />
                  </a>
                  <span class="right">
                    <Badge state={row.state} />
                    <span class="quiet small">
                      <Time at={row.sinceMs} />
                    </span>
                  </span>
                </li>
              ))}
            </ul>
          );
        }}
      </Shown>
    </Panel>
  );
}

function LatestAlerts() {
  const live = useLive<{ alerts: AnyAlert[] }>("/api/alerts?seen=false", { on: ["alert", "audit"] });
  return (
    <Panel title="Alerts">
      <Shown live={live} rows={3}>
        {({ alerts }) =>
          alerts.length === 0 ? (
            <Empty title="No unseen alerts" />
          ) : (
            <ul class="list">
              {alerts.slice(0, 6).map((alert) => (
                <li key={`${alert.ledgerKey} ${alert.alert}`}>
                  <a href={link(["ledgers", alert.ledgerKey, "alerts"])}>
                    <span class="named">
                      <span class="name">
                        {alert.kind}: {alert.subject}
                      </span>
                      <span class="under">{alert.ledger ?? alert.ledgerKey}</span>
                    </span>
                  </a>
                  <span class="right">
                    <Badge state={alert.severity} />
                    <span class="quiet small">
                      <Time at={alert.at} />
                    </span>
                  </span>
                </li>
              ))}
            </ul>
          )
        }
      </Shown>
    </Panel>
  );
}

const upstreamColumns: Column<Upstream>[] = [
  { id: "name", title: "Upstream", value: (row) => row.name, show: (row) => (row.circuitKey ? <a href={link(["circuits", row.circuitKey])}>{row.name}</a> : row.name), also: (row) => [row.kind, row.policy] },
  { id: "state", title: "Circuit", value: (row) => row.state, show: (row) => (row.state ? <Badge state={row.state} /> : <span class="quiet">–</span>) },
  { id: "calls", title: "Calls", numeric: true, value: (row) => row.calls, show: (row) => count(row.calls) },
  { id: "failed", title: "Failed", numeric: true, value: (row) => row.failed, show: (row) => <span class="with-meter">{count(row.failed)}<Meter value={row.failed} max={row.calls} tone="bad" /></span> },
  { id: "refused", title: "Refused", numeric: true, value: (row) => row.refused, show: (row) => count(row.refused) },
  { id: "inFlight", title: "In flight", numeric: true, value: (row) => row.inFlight, show: (row) => count(row.inFlight) },
];

function Upstreams() {
  const live = useLive<{ upstreams: Upstream[] }>("/api/upstreams", { on: ["circuit"] });
  return (
    <Panel title="Upstreams">
      <Shown live={live} rows={3}>
        {({ upstreams }) => <Table label="Upstreams" rows={upstreams} columns={upstreamColumns} id={(row) => row.name} filterable={upstreams.length > 8} order={{ column: "name", direction: "ascending" }} empty={{ title: "No upstreams are configured", text: "The gateway then only shows and governs; it forwards no calls." }} />}
      </Shown>
    </Panel>
  );
}

function Happening() {
  const [, again] = useState(0);
  useEffect(() => hear(({ event }) => (event === "circuit" ? again((turn) => turn + 1) : undefined)), []);
  return (
    <Panel title="Transitions as they happen">
      {seen.length === 0 ? (
        <Empty title="None since you opened this page">A transition appears here as it happens.</Empty>
      ) : (
        <ol class="list feed">
          {seen.slice(0, 8).map((each) => (
            <li key={`${each.key} ${each.generation} ${each.at}`}>
              <span>
                <a href={link(["circuits", each.key])}>{each.name ?? each.key}</a> <span class="quiet small">{each.reason}</span>
              </span>
              <span class="right">
                <Badge state={each.state} />
                <span class="quiet small">
                  <Time at={each.at} />
                </span>
              </span>
            </li>
          ))}
        </ol>
      )}
    </Panel>
  );
}
