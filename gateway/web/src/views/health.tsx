// The health of services: each with its state, since when, and what was found.

import { useLive } from "../lib/live";
import type { Health } from "../lib/types";
import { Badge, Shown, Time } from "../ui/bits";
import { Page } from "../ui/page";
import { Table, type Column } from "../ui/table";

type Service = Health["services"][number];

const columns: Column<Service>[] = [
  { id: "service", title: "Service", value: (row) => row.service, show: (row) => <strong>{row.service}</strong> },
  { id: "status", title: "Status", value: (row) => row.status, show: (row) => <Badge state={row.status} /> },
  { id: "since", title: "Since", numeric: true, value: (row) => row.since, show: (row) => <Time at={row.since} /> },
  { id: "detail", title: "Detail", value: (row) => row.detail, show: (row) => row.detail ?? <span class="quiet">–</span> },
  { id: "probe", title: "Probe", value: (row) => row.probe },
  { id: "checked", title: "Checked", numeric: true, value: (row) => row.checkedAt, show: (row) => <Time at={row.checkedAt} /> },
];

export function HealthView() {
  const live = useLive<Health>("/api/health", { on: ["health", "circuit"] });
  return (
    <Page title="Health" badge={live.data && <Badge state={live.data.status} />} lead={live.data ? (live.data.reporter ? "This gateway reports changes to the webhooks." : "Another gateway reports changes to the webhooks.") : undefined}>
      <Shown live={live}>
        {({ services }) => <Table label="Services" rows={services} columns={columns} id={(row) => row.service} order={{ column: "status", direction: "descending" }} empty={{ title: "No services are registered", text: "Add services under health in the gateway's configuration." }} />}
      </Shown>
    </Page>
  );
}
