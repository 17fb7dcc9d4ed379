// Alerts of every ledger, or of one. The person who takes one on marks it as seen.

import { useState } from "preact/hooks";
import { post } from "../lib/api";
import { useLive } from "../lib/live";
import { api, link } from "../lib/route";
import { count } from "../lib/time";
import type { AnyAlert } from "../lib/types";
import { ActButton, ActDialog } from "../ui/act";
import { Badge, Shown, Time } from "../ui/bits";
import { Page } from "../ui/page";
import { Table, type Column } from "../ui/table";

const MEANS: Record<string, string> = {
  many: "More than ten deaths of a type since the last one was seen.",
  spike: "Far more deaths of a type in five minutes than usual.",
  aggregate: "The third death under one aggregate.",
  stopped: "A redrive stopped itself: most of its last outcomes died again.",
  full: "The ledger passed 80 % of its entries or bytes.",
};

export function AlertTable({ alerts, again }: { alerts: readonly AnyAlert[]; again: () => void }) {
  const [chosen, setChosen] = useState<AnyAlert | null>(null);
  const columns: Column<AnyAlert>[] = [
    { id: "severity", title: "Severity", value: (row) => row.severity, show: (row) => <Badge state={row.severity} /> },
    { id: "kind", title: "Alert", value: (row) => row.kind, show: (row) => <span class="named"><span class="name">{row.kind}: {row.subject}</span><span class="under">{MEANS[row.kind] ?? ""}</span></span>, also: (row) => [row.subject] },
    { id: "ledger", title: "Ledger", value: (row) => row.ledger ?? row.ledgerKey, show: (row) => <a href={link(["ledgers", row.ledgerKey])}>{row.ledger ?? row.ledgerKey}</a> },
    { id: "count", title: "Count", numeric: true, value: (row) => row.count, show: (row) => count(row.count) },
    { id: "at", title: "When", numeric: true, value: (row) => row.at, show: (row) => <Time at={row.at} /> },
    { id: "seen", title: "Seen", fixed: true, value: (row) => row.seen, show: (row) => row.seen ? <span class="quiet">seen</span> : <ActButton needs="operate" small onClick={() => setChosen(row)} label={`Mark as seen… alert ${row.alert}, ${row.kind} of ${row.subject}`}>Mark as seen…</ActButton> },
  ];
  return (
    <>
      <Table label="Alerts" rows={alerts} columns={columns} id={(row) => `${row.ledgerKey} ${row.alert}`} order={{ column: "at", direction: "descending" }} empty={{ title: "No alerts", text: "An alert stays here until somebody marks it as seen." }} />
      {chosen && (
        <ActDialog title="Mark as seen" confirm="Mark as seen" tone="primary" reason={false} done={`The alert ${chosen.kind} of ${chosen.subject} is seen`} close={() => setChosen(null)} act={async ({ actor }) => { await post(api(["ledgers", chosen.ledgerKey, "alerts", chosen.alert, "seen"]), { actor }); again(); }}>
          <p>
            <strong>{chosen.kind}: {chosen.subject}</strong>. It leaves the list of unseen alerts; the next one of its kind is reported again.
          </p>
        </ActDialog>
      )}
    </>
  );
}

export function Alerts() {
  const [isAll, setAll] = useState(false);
  const live = useLive<{ alerts: AnyAlert[] }>(api(["alerts"], { seen: isAll }), { on: ["alert", "audit"] });
  return (
    <Page
      title="Alerts"
      lead="What the ledgers found worth a person's attention."
      actions={
        <label class="check">
          <input type="checkbox" checked={isAll} onChange={(event) => setAll(event.currentTarget.checked)} /> Show seen ones too
        </label>
      }
    >
      <Shown live={live}>{({ alerts }) => <AlertTable alerts={alerts} again={live.again} />}</Shown>
    </Page>
  );
}
