// Who did what, and what was refused: of the gateway and of every ledger.

import { useLive } from "../lib/live";
import { link } from "../lib/route";
import type { Audit } from "../lib/types";
import { Badge, Shown, Time } from "../ui/bits";
import { Page } from "../ui/page";
import { Table, type Column } from "../ui/table";

function target(row: Audit) {
  if (row.target === null) return <span class="quiet">–</span>;
  const view = row.type.startsWith("circuit.") ? "circuits" : row.type.startsWith("lock.") ? "locks" : row.type.startsWith("policy.") ? "policies" : row.source === "ledger" || row.type.startsWith("ledger.") || row.type.startsWith("dlq.") ? "ledgers" : null;
  return view === null ? <code>{row.target}</code> : <a href={link([view, row.target])}><code>{row.target}</code></a>;
}

const columns: Column<Audit>[] = [
  { id: "at", title: "When", numeric: true, value: (row) => row.at, show: (row) => <Time at={row.at} /> },
  { id: "actor", title: "Actor", value: (row) => row.actor, show: (row) => <span class="named"><span class="name plain">{row.actor ?? "–"}</span>{(row.spiffeId ?? row.principal) && <span class="under">{row.spiffeId ?? row.principal}</span>}</span>, also: (row) => [row.principal, row.spiffeId] },
  { id: "action", title: "Action", value: (row) => row.action, show: (row) => <span class="named"><span class="name plain">{row.action}</span><span class="under">{row.type}</span></span>, also: (row) => [row.type] },
  { id: "target", title: "Target", value: (row) => row.target, show: target },
  { id: "outcome", title: "Outcome", value: (row) => row.outcome, show: (row) => <Badge state={row.outcome} /> },
  { id: "correlation", title: "Correlation", value: (row) => row.correlationId, show: (row) => (row.correlationId ? <code class="short" title={row.correlationId}>{row.correlationId}</code> : <span class="quiet">–</span>) },
];

export function AuditView() {
  const live = useLive<{ audit: Audit[] }>("/api/audit?limit=500", { on: ["audit"] });
  return (
    <Page title="Audit" lead="Every change, and every attempt that was refused, with its actor and reason. The newest 500.">
      <Shown live={live} rows={8}>
        {({ audit }) => <Table label="Audit" rows={audit} columns={columns} id={(row) => `${row.source} ${row.ledger} ${row.id}`} order={{ column: "at", direction: "descending" }} empty={{ title: "Nothing was done yet", text: "Every action of the dashboard, the API and the ledgers is listed here." }} />}
      </Shown>
    </Page>
  );
}
