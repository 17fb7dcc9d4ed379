// One entry: what failed, how often, what it carried, what became of it, and what can be done.

import { useState } from "preact/hooks";
import { post } from "../lib/api";
import { useLive } from "../lib/live";
import { api, link } from "../lib/route";
import { bytes, count, span } from "../lib/time";
import type { Bytes, EntryDetail } from "../lib/types";
import { ActButton, ActDialog } from "../ui/act";
import { Badge, Empty, Facts, Panel, Shown, Time, toneOf } from "../ui/bits";
import { Page } from "../ui/page";
import { shortName } from "./all";
import { CaseLinks, newCase } from "./ledgers";

type Holding = { what: "entry" | "aggregate"; on: boolean } | null;

export function EntryView({ ledger, id }: { ledger: string; id: string }) {
  const live = useLive<EntryDetail>(api(["ledgers", ledger, "entries", id]), { on: ({ event, data }) => event === "audit" || (event === "dead" && data["id"] === id) });
  const [holding, setHolding] = useState<Holding>(null);
  const entry = live.data;
  const isDead = entry?.state === "dead";
  return (
    <Page
      title={id}
      crumbs={[{ title: "Dead letters", href: link(["ledgers"]) }, { title: shortName(ledger), href: link(["ledgers", ledger]) }, { title: "Entries", href: link(["ledgers", ledger, "entries"]) }]}
      badge={entry && <><Badge state={entry.state} />{entry.held && <span class="chip">held</span>}</>}
      actions={entry && (
        <>
          <ActButton needs="operate" onClick={() => setHolding({ what: "entry", on: !entry.held })}>{entry.held ? "Release the hold…" : "Hold…"}</ActButton>
          {entry.aggregate !== null && <ActButton needs="operate" onClick={() => setHolding({ what: "aggregate", on: !entry.held })}>{entry.held ? "Release its aggregate…" : "Hold its aggregate…"}</ActButton>}
          <ActButton needs="govern" tone="primary" blocked={!isDead ? "Only what is dead is redriven." : entry.group === null ? "It has no group." : null} onClick={() => (location.hash = newCase(ledger, [entry.group ?? ""]))}>Open a case…</ActButton>
        </>
      )}
    >
      <Shown live={live} rows={8}>
        {(now) => (
          <>
            {isDead && now.cases.length === 0 && <p class="banner info">A redrive needs a case: write down the cause and the fix first.</p>}
            <div class="columns">
              <Panel title="What failed">
                <Facts
                  rows={[
                    ["Last error", now.lastError ?? "–"],
                    ["First error", now.firstError ?? "–"],
                    ["Group", now.group === null ? "–" : <a href={link(["ledgers", ledger, "entries"], { group: now.group })}>{now.group}</a>],
                    ["Class", now.failureClass ?? "–"],
                    ["Died of", now.reason ?? "–"],
                    ["Type", now.kind ?? "–"],
                    ["Aggregate", now.aggregate === null ? "–" : <a href={link(["ledgers", ledger, "entries"], { aggregate: now.aggregate })}>{now.aggregate}</a>],
                    ["Source", now.source ?? "–"],
                    ["Schema", now.schema ?? "–"],
                    ["Reference", now.reference ?? "–"],
                    ["Attempts", `${count(now.attempt)} · ${count(now.lapses)} lapses · ${count(now.deaths)} deaths`],
                    ["First failure", <Time at={now.firstAt} />],
                    ["Last failure", <Time at={now.lastAt} />],
                    ["Died", <Time at={now.diedAt} />],
                    ["Due", <Time at={now.dueAt} />],
                    ["Cases", <CaseLinks ledger={ledger} cases={now.cases} />],
                  ]}
                />
              </Panel>
              <Panel title="Timeline">
                {now.timeline.length === 0 ? <Empty title="Nothing is known of its way" /> : (
                  <ol class="timeline">
                    {now.timeline.map((step, at) => (
                      <li key={at} class={toneOf(step.what === "now" ? now.state : step.what)}>
                        <span class="what">{step.text}{step.case !== null && <> <a class="chip" href={link(["ledgers", ledger, "cases", step.case])}>case {step.case}</a></>}</span>
                        <span class="quiet small"><Time at={step.at} /></span>
                      </li>
                    ))}
                  </ol>
                )}
                {now.attempts.length > 0 && (
                  <p class="pad small quiet">
                    Delays before its retries: {now.attempts.map((each) => (each.delayMs === null ? "none" : span(each.delayMs))).join(", ")}
                  </p>
                )}
              </Panel>
            </div>
            <Content title="Payload" value={now.payload} />
            <Content title="Headers" value={now.headers} />
            {now.cut.length > 0 && <p class="quiet small">Cut when it was stored: {now.cut.join(", ")}.</p>}
          </>
        )}
      </Shown>
      {holding && entry && (
        <ActDialog
          title={holding.on ? `Hold ${holding.what === "entry" ? id : entry.aggregate}` : `Release ${holding.what === "entry" ? id : entry.aggregate}`}
          confirm={holding.on ? "Hold" : "Release"}
          tone="primary"
          done={holding.on ? "It is held" : "The hold is released"}
          close={() => setHolding(null)}
          act={async (who) => {
            await post(api(["ledgers", ledger, "hold"]), { ...(holding.what === "entry" ? { id } : { aggregate: entry.aggregate }), on: holding.on, ...who });
            live.again();
          }}
        >
          <p>{holding.on ? "What is held stays, with its payload, whatever happens to it: it is not purged." : "It can be purged again when its time has come."}</p>
        </ActDialog>
      )}
    </Page>
  );
}

function Content({ title, value }: { title: string; value: Bytes | null }) {
  if (value === null) return null;
  return (
    <Panel title={title} aside={<span class="quiet small">{bytes(value.bytes)}{value.truncated ? ", the beginning is shown" : ""}{value.text === null ? ", base64" : ""}</span>}>
      <pre class="code" tabIndex={0} aria-label={title}>{value.text === null ? (value.base64 ?? "") : indented(value.text)}</pre>
    </Panel>
  );
}

function indented(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
