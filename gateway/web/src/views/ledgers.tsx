// Dead letters: the ledgers, and one of them by groups, entries, cases, alerts and audit.

import { useState } from "preact/hooks";
import { post } from "../lib/api";
import { useLive } from "../lib/live";
import { api, link } from "../lib/route";
import { bytes, count, parseSpan, span } from "../lib/time";
import type { Alert, Case, Group, Ledger, LedgerAudit, LedgerRow } from "../lib/types";
import { ActButton, ActDialog, Field } from "../ui/act";
import { Badge, Empty, Facts, Key, Panel, Shown, Time } from "../ui/bits";
import { Config } from "../ui/config";
import { Page, Tabs } from "../ui/page";
import { Table, type Column } from "../ui/table";
import { AlertTable } from "./alerts";
import { shortName } from "./all";
import { Entries } from "./entries";

const columns: Column<LedgerRow>[] = [
  { id: "name", title: "Ledger", value: (row) => row.name ?? row.key, also: (row) => [row.key], show: (row) => <a href={link(["ledgers", row.key])}><Key value={row.key} name={row.name} /></a> },
  { id: "state", title: "State", value: (row) => row.state, show: (row) => <Badge state={row.state} /> },
  { id: "dead", title: "Dead", numeric: true, value: (row) => row.dead, show: (row) => <strong class={row.dead > 0 ? "bad-text" : ""}>{count(row.dead)}</strong> },
  { id: "waiting", title: "Waiting", numeric: true, value: (row) => row.waiting, show: (row) => count(row.waiting) },
  { id: "taken", title: "Taken", numeric: true, value: (row) => row.taken, show: (row) => count(row.taken) },
  { id: "resolved", title: "Resolved", numeric: true, value: (row) => row.resolved, show: (row) => count(row.resolved) },
  { id: "groups", title: "Groups", numeric: true, value: (row) => row.groups, show: (row) => count(row.groups) },
  { id: "cases", title: "Open cases", numeric: true, value: (row) => row.casesOpen, show: (row) => count(row.casesOpen) },
  { id: "alerts", title: "Alerts", numeric: true, value: (row) => row.alertsUnseen, show: (row) => count(row.alertsUnseen) },
  { id: "bytes", title: "Size", numeric: true, value: (row) => row.bytes, show: (row) => bytes(row.bytes) },
];

export function Ledgers() {
  const live = useLive<{ ledgers: LedgerRow[] }>("/api/ledgers", { on: ["dead", "alert", "audit"] });
  return (
    <Page title="Dead letters" lead="Messages that failed. What died comes back only under a written cause, at a rate, and verified.">
      <Shown live={live}>
        {({ ledgers }) => <Table label="Ledgers" rows={ledgers} columns={columns} id={(row) => row.key} order={{ column: "dead", direction: "descending" }} empty={{ title: "No ledgers", text: "A ledger appears when a worker puts its first failed message into it." }} />}
      </Shown>
    </Page>
  );
}

const TABS = [
  { id: "groups", title: "Groups" },
  { id: "entries", title: "Entries" },
  { id: "cases", title: "Cases" },
  { id: "alerts", title: "Alerts" },
  { id: "audit", title: "Audit" },
  { id: "settings", title: "Settings" },
] as const;

export function LedgerView({ id, tab, query }: { id: string; tab: string; query: URLSearchParams }) {
  const concerns = ({ event, data }: { event: string; data: Record<string, unknown> }): boolean => event === "audit" || ((event === "dead" || event === "alert") && data["ledgerKey"] === id);
  const live = useLive<Ledger>(api(["ledgers", id]), { on: concerns });
  const [isPausing, setPausing] = useState(false);
  const info = live.data?.info;
  const isPaused = info !== undefined && info.pausedUntil !== null;
  const title = live.data?.name ?? shortName(id);
  return (
    <Page
      title={title}
      crumbs={[{ title: "Dead letters", href: link(["ledgers"]) }]}
      lead={<code>{id}</code>}
      badge={info && <Badge state={isPaused ? "paused" : "running"} />}
      actions={<ActButton needs="operate" onClick={() => setPausing(true)}>{isPaused ? "Resume…" : "Pause…"}</ActButton>}
    >
      <Shown live={live} rows={1}>
        {({ info: now }) => (
          <>
            {now.pausedUntil !== null && <p class="banner warn" role="status"><strong>Paused.</strong> Nothing is given out {now.pausedUntil > 0 ? <>until it resumes <Time at={now.pausedUntil} /></> : "until somebody resumes it"}.</p>}
            <ul class="strip" aria-label="Entries by state">
              {(["dead", "waiting", "taken", "parked", "resolved", "archived"] as const).map((state) => (
                <li key={state}>
                  <a href={link(["ledgers", id, "entries"], { state })}>
                    <strong>{count(now[state])}</strong> {state}
                  </a>
                </li>
              ))}
              <li><span><strong>{count(now.held)}</strong> held</span></li>
              <li><span><strong>{bytes(now.bytes)}</strong></span></li>
            </ul>
          </>
        )}
      </Shown>
      <Tabs label={`Parts of ${title}`} tabs={TABS.map((each) => ({ title: each.title, href: link(["ledgers", id, each.id]), isCurrent: each.id === tab, count: each.id === "groups" ? info?.groups : each.id === "cases" ? info?.casesOpen : each.id === "alerts" ? info?.alertsUnseen : undefined }))} />
      {tab === "groups" ? <Groups ledger={id} on={concerns} /> : tab === "entries" ? <Entries ledger={id} query={query} on={concerns} /> : tab === "cases" ? <Cases ledger={id} on={concerns} /> : tab === "alerts" ? <LedgerAlerts ledger={id} name={live.data?.name ?? null} on={concerns} /> : tab === "audit" ? <AuditOf ledger={id} on={concerns} /> : tab === "settings" ? (
        <Shown live={live}>{({ config, info: now }) => (
          <div class="columns">
            <Panel title="Configuration"><Config value={config} /></Panel>
            <Panel title="Contents"><Facts rows={[["Entries", count(now.entries)], ["Size", bytes(now.bytes)], ["Groups", count(now.groups)], ["Held", count(now.held)]]} /></Panel>
          </div>
        )}</Shown>
      ) : <Empty title="There is no such page" />}
      {isPausing && <Pause id={id} title={title} isPaused={isPaused} close={() => setPausing(false)} again={live.again} />}
    </Page>
  );
}

function Pause({ id, title, isPaused, close, again }: { id: string; title: string; isPaused: boolean; close: () => void; again: () => void }) {
  const [length, setLength] = useState("");
  const forMs = parseSpan(length);
  const problem = length.trim() !== "" && forMs === undefined ? "A number with a unit: 30s, 10m, 2h." : null;
  return (
    <ActDialog
      title={isPaused ? `Resume ${title}` : `Pause ${title}`}
      confirm={isPaused ? "Resume" : "Pause"}
      tone={isPaused ? "primary" : "danger"}
      done={isPaused ? `${title} gives out again` : `${title} is paused${forMs ? ` for ${span(forMs)}` : ""}`}
      close={close}
      act={async (who) => {
        if (problem !== null) throw new Error(problem);
        await post(api(["ledgers", id, "pause"]), { paused: !isPaused, ...(!isPaused && forMs !== undefined ? { forMs } : {}), ...who });
        again();
      }}
    >
      {isPaused ? <p>Retries and redrives are given out again.</p> : (
        <>
          <p>No retry and no redrive is given out while the ledger is paused. Failures are still taken in.</p>
          <Field id="pause-for" label="For (empty: until somebody resumes it)" hint="As in 10m or 2h." problem={problem}>
            <input id="pause-for" value={length} autoComplete="off" placeholder="until resumed" aria-describedby="pause-for-hint" onInput={(event) => setLength(event.currentTarget.value)} />
          </Field>
        </>
      )}
    </ActDialog>
  );
}

type Concerns = (event: { event: string; data: Record<string, unknown> }) => boolean;

function Groups({ ledger, on }: { ledger: string; on: Concerns }) {
  const live = useLive<{ groups: Group[] }>(api(["ledgers", ledger, "groups"]), { on });
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const toggle = (group: string): void => {
    const next = new Set(chosen);
    if (!next.delete(group)) next.add(group);
    setChosen(next);
  };
  const groups: Column<Group>[] = [
    { id: "choose", title: "Choose", fixed: true, value: () => null, show: (row) => <input type="checkbox" aria-label={`Choose ${row.group}`} checked={chosen.has(row.group)} onChange={() => toggle(row.group)} /> },
    { id: "group", title: "Group", value: (row) => row.group, also: (row) => [row.sample, row.kind], show: (row) => <a href={link(["ledgers", ledger, "entries"], { group: row.group })}><span class="named"><span class="name">{row.group}</span>{row.sample && <span class="under">{row.sample}</span>}</span></a> },
    { id: "dead", title: "Dead", numeric: true, value: (row) => row.dead, show: (row) => <strong class={row.dead > 0 ? "bad-text" : ""}>{count(row.dead)}</strong> },
    { id: "entries", title: "Entries", numeric: true, value: (row) => row.entries, show: (row) => count(row.entries) },
    { id: "deaths", title: "Deaths", numeric: true, value: (row) => row.deaths, show: (row) => count(row.deaths) },
    { id: "first", title: "First", numeric: true, value: (row) => row.firstAt, show: (row) => <Time at={row.firstAt} /> },
    { id: "last", title: "Last", numeric: true, value: (row) => row.lastAt, show: (row) => <Time at={row.lastAt} /> },
    { id: "cases", title: "Cases", value: (row) => row.cases.length, show: (row) => <CaseLinks ledger={ledger} cases={row.cases} /> },
  ];
  return (
    <Shown live={live}>
      {({ groups: rows }) => {
        const known = [...chosen].filter((group) => rows.some((row) => row.group === group));
        return (
          <Table
            label="Groups" rows={rows} columns={groups} id={(row) => row.group} order={{ column: "dead", direction: "descending" }}
            empty={{ title: "No groups", text: "Failures with the same cause form a group. There are none." }}
            tools={
              <ActButton needs="govern" tone="primary" blocked={known.length === 0 ? "Choose the groups that one cause explains." : null} onClick={() => (location.hash = newCase(ledger, known))}>
                Open a case{known.length > 0 ? ` for ${known.length}` : ""}…
              </ActButton>
            }
          />
        );
      }}
    </Shown>
  );
}

export function newCase(ledger: string, groups: readonly string[]): string {
  return `${link(["ledgers", ledger, "cases", "new"])}?${new URLSearchParams(groups.map((group) => ["group", group])).toString()}`;
}

export function CaseLinks({ ledger, cases }: { ledger: string; cases: readonly number[] }) {
  if (cases.length === 0) return <span class="quiet">none</span>;
  return <span class="chips">{cases.map((each) => <a class="chip" key={each} href={link(["ledgers", ledger, "cases", each])}>case {each}</a>)}</span>;
}

function Cases({ ledger, on }: { ledger: string; on: Concerns }) {
  const live = useLive<{ cases: Case[] }>(api(["ledgers", ledger, "cases"]), { on });
  const cases: Column<Case>[] = [
    { id: "case", title: "Case", numeric: true, value: (row) => row.case, show: (row) => <a href={link(["ledgers", ledger, "cases", row.case])}>{row.case}</a> },
    { id: "state", title: "State", value: (row) => stateOf(row), show: (row) => <Badge state={stateOf(row)} {...(row.closedAt !== null ? { tone: "idle" as const } : row.redrive === null ? { tone: "info" as const } : {})} /> },
    { id: "category", title: "Category", value: (row) => row.category },
    { id: "cause", title: "Cause", value: (row) => row.cause, show: (row) => <span class="named"><span class="name plain">{row.cause}</span><span class="under">Fix: {row.fix}</span></span>, also: (row) => [row.fix, ...row.groups] },
    { id: "actor", title: "By", value: (row) => row.actor ?? row.user },
    { id: "opened", title: "Opened", numeric: true, value: (row) => row.openedAt, show: (row) => <Time at={row.openedAt} /> },
  ];
  return (
    <Shown live={live}>
      {({ cases: rows }) => <Table label="Cases" rows={rows} columns={cases} id={(row) => String(row.case)} order={{ column: "case", direction: "descending" }} empty={{ title: "No cases", text: "Choose groups that one cause explains, and open a case for them. Only then they can be redriven." }} />}
    </Shown>
  );
}

export function stateOf(row: Case): string {
  if (row.closedAt !== null) return row.discarded ? "discarded" : "closed";
  return row.redrive === null ? "open case" : row.redrive.phase;
}

function LedgerAlerts({ ledger, name, on }: { ledger: string; name: string | null; on: Concerns }) {
  const live = useLive<{ alerts: Alert[] }>(api(["ledgers", ledger, "alerts"]), { on });
  return <Shown live={live}>{({ alerts }) => <AlertTable alerts={alerts.map((alert) => ({ ...alert, ledger: name, ledgerKey: ledger }))} again={live.again} />}</Shown>;
}

const auditColumns: Column<LedgerAudit>[] = [
  { id: "at", title: "When", numeric: true, value: (row) => row.at, show: (row) => <Time at={row.at} /> },
  { id: "actor", title: "Actor", value: (row) => row.actor ?? row.user, show: (row) => <span class="named"><span class="name plain">{row.actor ?? "–"}</span>{row.user && <span class="under">user {row.user}</span>}</span>, also: (row) => [row.user] },
  { id: "action", title: "Action", value: (row) => row.action },
  { id: "correlation", title: "Correlation", value: (row) => row.correlation, show: (row) => (row.correlation ? <code>{row.correlation}</code> : <span class="quiet">–</span>) },
];

function AuditOf({ ledger, on }: { ledger: string; on: Concerns }) {
  const live = useLive<{ audit: LedgerAudit[] }>(api(["ledgers", ledger, "audit"]), { on });
  return <Shown live={live}>{({ audit }) => <Table label="Audit" rows={audit} columns={auditColumns} id={(row) => String(row.id)} order={{ column: "at", direction: "descending" }} empty={{ title: "Nothing was done yet" }} />}</Shown>;
}
