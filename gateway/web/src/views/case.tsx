// One case: what was written down, and the redrive that it unlocks.

import { useState } from "preact/hooks";
import { post, Problem } from "../lib/api";
import { useLive } from "../lib/live";
import { api, link } from "../lib/route";
import { plural } from "../lib/time";
import type { Case, CaseProgress } from "../lib/types";
import { ActButton, ActDialog } from "../ui/act";
import { Badge, Facts, Panel, Shown, Time } from "../ui/bits";
import { Page } from "../ui/page";
import { shortName } from "./all";
import { stateOf } from "./ledgers";
import { Redrive } from "./redrive";

export function CaseView({ ledger, id, step }: { ledger: string; id: string; step: string | null }) {
  const on = ["dead", "audit", "alert"];
  const live = useLive<Case>(api(["ledgers", ledger, "cases", id]), { on, everyMs: 5_000 });
  const isAtWork = ["running", "verifying", "draining"].includes(live.data?.redrive?.phase ?? "");
  const progress = useLive<CaseProgress>(api(["ledgers", ledger, "cases", id, "progress"]), { on, everyMs: isAtWork ? 1_000 : 5_000 });
  const [closing, setClosing] = useState<"close" | "discard" | null>(null);
  const now = live.data;
  const unresolved = progress.data?.unresolved ?? 0;
  const isClosed = now?.closedAt !== null && now?.closedAt !== undefined;
  const isVerified = progress.data?.verified === true;
  const again = (): void => {
    live.again();
    progress.again();
  };
  return (
    <Page
      title={`Case ${id}`}
      crumbs={[{ title: "Dead letters", href: link(["ledgers"]) }, { title: shortName(ledger), href: link(["ledgers", ledger]) }, { title: "Cases", href: link(["ledgers", ledger, "cases"]) }]}
      badge={now && <><Badge state={isVerified ? "verified" : stateOf(now)} {...(isClosed && !isVerified ? { tone: "idle" as const } : now.redrive === null && !isVerified ? { tone: "info" as const } : {})} /><span class="chip">{now.category}</span></>}
      actions={now && !isClosed && (
        <>
          <ActButton needs="govern" blocked={now.category === "poison" ? "A poison case is only discarded." : unresolved > 0 ? `${plural(unresolved, "entry is", "entries are")} not resolved: redrive or discard them.` : null} onClick={() => setClosing("close")}>Close…</ActButton>
          <ActButton needs="govern" tone="danger" onClick={() => setClosing("discard")}>Discard…</ActButton>
        </>
      )}
    >
      <Shown live={live}>
        {(it) => (
          <>
            <Panel title="Root cause">
              <Facts
                rows={[
                  ["Cause", it.cause],
                  ["Fix", it.fix === "" ? "–" : it.fix],
                  ...(it.decision ? [["Decision", it.decision] as const] : []),
                  ["Groups", <span class="stacked">{it.groups.map((group) => <a key={group} href={link(["ledgers", ledger, "entries"], { group })}>{group}</a>)}</span>],
                  ["Opened", <><Time at={it.openedAt} /> by {it.actor ?? it.user ?? "somebody"}</>],
                  ...(it.closedAt !== null ? [[it.discarded ? "Discarded" : "Closed", <Time at={it.closedAt} />] as const] : []),
                  ...(it.autoUntil !== null ? [["Redrives by itself", <>ends <Time at={it.autoUntil} /></>] as const] : []),
                  ["Not resolved", progress.data?.unresolved == null ? "–" : String(unresolved)],
                ]}
              />
            </Panel>
            <Redrive ledger={ledger} it={it} live={progress} again={again} wanted={step} />
          </>
        )}
      </Shown>
      {closing && (
        <ActDialog
          title={closing === "close" ? `Close case ${id}` : `Discard what is left of case ${id}`}
          confirm={closing === "close" ? "Close" : "Discard"}
          tone={closing === "close" ? "primary" : "danger"}
          reason={false}
          done={closing === "close" ? `Case ${id} is closed` : `What was left of case ${id} is being archived`}
          close={() => setClosing(null)}
          act={async ({ actor }) => {
            const reply = await post<{ closed: boolean; unresolved: number }>(api(["ledgers", ledger, "cases", id, "close"]), { discard: closing === "discard", actor });
            // A discard goes on in slices; a case with something left is not closed.
            if (!reply.closed && closing === "close") throw new Problem(409, "UNRESOLVED", "Not closed", `${plural(reply.unresolved, "entry is", "entries are")} not resolved: redrive or discard them.`);
            again();
          }}
        >
          <p>{closing === "close" ? "Everything under this case is resolved." : "Archives every entry of the case that was not handled. They are kept, but never delivered again."}</p>
        </ActDialog>
      )}
    </Page>
  );
}
