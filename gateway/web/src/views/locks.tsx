// Locks and bulkheads: the lists, and one of them with its holders and those who wait for it.

import { useState } from "preact/hooks";
import { post } from "../lib/api";
import { useLive } from "../lib/live";
import { api, link } from "../lib/route";
import { count, plural } from "../lib/time";
import type { BulkheadRow, Held, LockRow } from "../lib/types";
import { ActButton, ActDialog } from "../ui/act";
import { Badge, Empty, Key, Meter, Panel, Running, Shown } from "../ui/bits";
import { Page } from "../ui/page";
import { Table, type Column } from "../ui/table";
import { shortName } from "./all";

const EVERY_MS = 5_000;

function lockColumns(at: number | undefined): Column<LockRow>[] {
  return [
    { id: "name", title: "Lock", value: (row) => row.name ?? row.key, also: (row) => [row.key], show: (row) => <a href={link(["locks", row.key])}><Key value={row.key} name={row.name} /></a> },
    { id: "state", title: "State", value: (row) => row.state, show: (row) => <Badge state={row.state} /> },
    { id: "owner", title: "Holder", value: (row) => row.owner, show: (row) => <span class="named"><span class="name plain">{row.owner ?? "–"}</span>{row.holders > 1 && <span class="under">and {count(row.holders - 1)} more</span>}</span> },
    { id: "mode", title: "Mode", value: (row) => row.mode },
    { id: "held", title: "Held for", numeric: true, value: (row) => row.heldMs, show: (row) => <Running ms={row.heldMs} at={at} /> },
    { id: "lease", title: "Lease left", numeric: true, value: (row) => row.leaseLeftMs, show: (row) => <Running ms={row.leaseLeftMs} at={at} down /> },
    { id: "waiters", title: "Waiters", numeric: true, value: (row) => row.waiters, show: (row) => count(row.waiters) },
    { id: "oldest", title: "Longest wait", numeric: true, value: (row) => (row.waiters > 0 ? row.oldestWaitMs : null), show: (row) => (row.waiters > 0 ? <Running ms={row.oldestWaitMs} at={at} /> : <span class="quiet">–</span>) },
    { id: "fence", title: "Fence", numeric: true, value: (row) => row.fence },
  ];
}

export function Locks() {
  const live = useLive<{ locks: LockRow[] }>("/api/locks", { on: ["lost", "audit"], everyMs: EVERY_MS });
  return (
    <Page title="Locks" lead="Locks that are held now, with those who wait for them.">
      <Shown live={live}>
        {({ locks }) => <Table label="Locks" rows={locks} columns={lockColumns(live.at)} id={(row) => row.key} order={{ column: "waiters", direction: "descending" }} empty={{ title: "No lock is held", text: "A lock is listed while somebody holds it." }} />}
      </Shown>
    </Page>
  );
}

function bulkheadColumns(at: number | undefined): Column<BulkheadRow>[] {
  return [
    { id: "name", title: "Bulkhead", value: (row) => row.name ?? row.key, also: (row) => [row.key], show: (row) => <a href={link(["bulkheads", row.key])}><Key value={row.key} name={row.name} /></a> },
    { id: "state", title: "State", value: (row) => row.state, show: (row) => <Badge state={row.state} /> },
    { id: "active", title: "In use", numeric: true, value: (row) => (row.max > 0 ? row.active / row.max : row.active), show: (row) => <span class="with-meter">{count(row.active)} of {count(row.max)}<Meter value={row.active} max={row.max} tone={row.active >= row.max ? "bad" : "info"} /></span> },
    { id: "waiters", title: "Waiters", numeric: true, value: (row) => row.waiters, show: (row) => count(row.waiters) },
    { id: "oldest", title: "Longest wait", numeric: true, value: (row) => (row.waiters > 0 ? row.oldestWaitMs : null), show: (row) => (row.waiters > 0 ? <Running ms={row.oldestWaitMs} at={at} /> : <span class="quiet">–</span>) },
    { id: "held", title: "Longest held", numeric: true, value: (row) => row.heldMs, show: (row) => <Running ms={row.heldMs} at={at} /> },
  ];
}

export function Bulkheads() {
  const live = useLive<{ bulkheads: BulkheadRow[] }>("/api/bulkheads", { on: ["lost"], everyMs: EVERY_MS });
  return (
    <Page title="Bulkheads" lead="How many calls each bulkhead admits at once, and how many of its places are in use.">
      <Shown live={live}>
        {({ bulkheads }) => <Table label="Bulkheads" rows={bulkheads} columns={bulkheadColumns(live.at)} id={(row) => row.key} order={{ column: "active", direction: "descending" }} empty={{ title: "No bulkhead is in use", text: "A bulkhead is listed while a call has one of its places." }} />}
      </Shown>
    </Page>
  );
}

type Holder = Held["holders"][number];
type Waiter = Held["waiters"][number];

export function HeldView({ id, kind }: { id: string; kind: "locks" | "bulkheads" }) {
  const live = useLive<Held>(api([kind, id]), { on: ({ event, data }) => event === "audit" || (event === "lost" && data["key"] === id), everyMs: EVERY_MS });
  const [isBreaking, setBreaking] = useState(false);
  const title = shortName(id);
  const at = live.at;
  const holders: Column<Holder>[] = [
    { id: "owner", title: "Holder", value: (row) => row.owner, show: (row) => <span class="named"><span class="name plain">{row.owner}</span>{row.meta && <span class="under">{row.meta}</span>}</span>, also: (row) => [row.meta] },
    { id: "mode", title: "Mode", value: (row) => row.mode },
    { id: "held", title: "Held for", numeric: true, value: (row) => row.heldMs, show: (row) => <Running ms={row.heldMs} at={at} /> },
    { id: "left", title: "Lease left", numeric: true, value: (row) => row.remainingMs, show: (row) => <Running ms={row.remainingMs} at={at} down /> },
    { id: "fence", title: "Fence", numeric: true, value: (row) => row.fence },
    { id: "bound", title: "Ends with its connection", value: (row) => row.isBound, show: (row) => (row.isBound ? "yes" : "no") },
  ];
  const waiters: Column<Waiter>[] = [
    { id: "owner", title: "Waiter", value: (row) => row.owner },
    { id: "mode", title: "Mode", value: (row) => row.mode },
    { id: "priority", title: "Priority", numeric: true, value: (row) => row.priority },
    { id: "waited", title: "Waits for", numeric: true, value: (row) => row.waitedMs, show: (row) => <Running ms={row.waitedMs} at={at} /> },
  ];
  const isFree = live.data !== undefined && live.data.holdersTotal === 0;
  return (
    <Page
      title={title}
      crumbs={[kind === "locks" ? { title: "Locks", href: link(["locks"]) } : { title: "Bulkheads", href: link(["bulkheads"]) }]}
      lead={<code>{id}</code>}
      badge={live.data && <Badge state={isFree ? "free" : live.data.waitersTotal > 0 ? "contended" : "held"} />}
      actions={kind === "locks" ? <ActButton needs="operate" tone="danger" onClick={() => setBreaking(true)} blocked={isFree ? "Nobody holds it." : null}>Break…</ActButton> : undefined}
    >
      <Shown live={live}>
        {(now) => !now.exists ? (
          <Empty title="Nobody holds it and nobody waits">It is listed again when somebody does.</Empty>
        ) : (
          <>
            <Panel title="Holders" aside={now.lastFence !== null ? <span class="quiet small">last fence {now.lastFence}</span> : undefined}>
              <Table label="Holders" rows={now.holders} columns={holders} id={(row) => `${row.owner} ${row.fence}`} filterable={now.holders.length > 8} empty={{ title: "Nobody holds it" }} />
              {now.holdersTotal > now.holders.length && <p class="quiet pad">{plural(now.holdersTotal, "holder")} in all; the first are shown.</p>}
            </Panel>
            <Panel title="Waiters">
              <Table label="Waiters" rows={now.waiters} columns={waiters} id={(row) => `${row.owner} ${row.mode}`} filterable={now.waiters.length > 8} empty={{ title: "Nobody waits" }} />
              {now.waitersTotal > now.waiters.length && <p class="quiet pad">{plural(now.waitersTotal, "waiter")} in all; the first are shown.</p>}
            </Panel>
          </>
        )}
      </Shown>
      {isBreaking && (
        <ActDialog title={`Break ${title}`} confirm="Break the lock" done={`${title} was broken`} close={() => setBreaking(false)} act={async (who) => { await post(api(["locks", id, "break"]), who); live.again(); }}>
          <p>
            Takes the lock from {live.data?.holders.map((holder) => holder.owner).join(", ") || "its holder"}. The holder is notified and may still be at work: only the fence keeps its late writes out.
          </p>
        </ActDialog>
      )}
    </Page>
  );
}
