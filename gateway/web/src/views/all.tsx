// Which view an address means.

import type { ComponentChildren } from "preact";
import { link, type Route } from "../lib/route";
import { Empty } from "../ui/bits";
import { Page } from "../ui/page";
import { Alerts } from "./alerts";
import { AuditView } from "./audit";
import { Bulkheads, HeldView, Locks } from "./locks";
import { CaseView } from "./case";
import { CircuitView, Circuits } from "./circuits";
import { EntryView } from "./entry";
import { HealthView } from "./health";
import { LedgerView, Ledgers } from "./ledgers";
import { LimitsView } from "./limits";
import { NewCase } from "./case_editor";
import { OverviewView } from "./overview";
import { Policies } from "./policies";
import { PolicyView } from "./policy";
import { WorkView } from "./work";

export interface View {
  title: string;
  section: string;
  body: ComponentChildren;
}

export function view(route: Route): View {
  const [section = "", first, second, third] = route.parts;
  switch (section) {
    case "":
      return { title: "Overview", section, body: <OverviewView /> };
    case "circuits":
      return first === undefined ? { title: "Circuits", section, body: <Circuits /> } : { title: shortName(first), section, body: <CircuitView key={first} id={first} /> };
    case "limits":
      return { title: "Limits", section, body: <LimitsView /> };
    case "locks":
      return first === undefined ? { title: "Locks", section, body: <Locks /> } : { title: shortName(first), section, body: <HeldView key={first} id={first} kind="locks" /> };
    case "bulkheads":
      return first === undefined ? { title: "Bulkheads", section, body: <Bulkheads /> } : { title: shortName(first), section, body: <HeldView key={first} id={first} kind="bulkheads" /> };
    case "work":
      return { title: "In flight", section, body: <WorkView /> };
    case "policies":
      return first === undefined ? { title: "Policies", section, body: <Policies /> } : { title: `Policy ${first}`, section, body: <PolicyView key={first} name={first} isNew={route.query.has("new")} /> };
    case "ledgers":
      return ledger(route, first, second, third);
    case "alerts":
      return { title: "Alerts", section, body: <Alerts /> };
    case "audit":
      return { title: "Audit", section, body: <AuditView /> };
    case "health":
      return { title: "Health", section, body: <HealthView /> };
    default:
      return { title: "Not found", section: "none", body: <NotFound /> };
  }
}

function ledger(route: Route, key: string | undefined, tab = "groups", id: string | undefined): View {
  const section = "ledgers";
  if (key === undefined) return { title: "Dead letters", section, body: <Ledgers /> };
  if (tab === "entries" && id !== undefined) return { title: id, section, body: <EntryView key={id} ledger={key} id={id} /> };
  if (tab === "cases" && id === "new") return { title: "New case", section, body: <NewCase ledger={key} groups={route.query.getAll("group")} /> };
  if (tab === "cases" && id !== undefined) return { title: `Case ${id}`, section, body: <CaseView key={id} ledger={key} id={id} step={route.query.get("step")} /> };
  return { title: shortName(key), section, body: <LedgerView key={key} id={key} tab={tab} query={route.query} /> };
}

/** `payments` of `resil:policy:{payments}`; other keys as they are. */
export function shortName(key: string): string {
  return /^resil:[a-z]+:\{([^}]+)\}$/.exec(key)?.[1] ?? key;
}

function NotFound() {
  return (
    <Page title="Not found">
      <Empty title="There is no such page">
        Start at the <a href={link([])}>overview</a>.
      </Empty>
    </Page>
  );
}
