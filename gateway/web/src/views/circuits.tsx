// Circuits: the list, and one of them with its figures, what it was forced to, its transitions.

import { useState } from "preact/hooks";
import { post } from "../lib/api";
import { useLive } from "../lib/live";
import { api, link } from "../lib/route";
import { count, parseSpan, span } from "../lib/time";
import type { Circuit, CircuitRow, Transition } from "../lib/types";
import { ActButton, ActDialog, Field } from "../ui/act";
import { Badge, Empty, Facts, Key, Meter, Panel, Running, Shown, Time, type Tone } from "../ui/bits";
import { Config } from "../ui/config";
import { Page } from "../ui/page";
import { Table, type Column } from "../ui/table";
import { shortName } from "./all";

const rateTone = (percent: number): Tone => (percent >= 50 ? "bad" : percent >= 10 ? "warn" : "good");

const columns: Column<CircuitRow>[] = [
  { id: "name", title: "Circuit", value: (row) => row.name ?? row.key, also: (row) => [row.key, row.forcedBy, row.forcedReason], show: (row) => <a href={link(["circuits", row.key])}><Key value={row.key} name={row.name} /></a> },
  { id: "state", title: "State", value: (row) => row.state, show: (row) => <Badge state={row.state} /> },
  { id: "since", title: "Since", numeric: true, value: (row) => row.sinceMs, show: (row) => <Time at={row.sinceMs} /> },
  { id: "rate", title: "Failure rate", numeric: true, value: (row) => row.failureRatePct, show: (row) => <span class="with-meter">{row.failureRatePct} %<Meter value={row.failureRatePct} max={100} tone={rateTone(row.failureRatePct)} /></span> },
  { id: "calls", title: "Calls", numeric: true, value: (row) => row.calls, show: (row) => count(row.calls) },
  { id: "failures", title: "Failures", numeric: true, value: (row) => row.failures, show: (row) => count(row.failures) },
  { id: "trips", title: "Trips", numeric: true, value: (row) => row.trips, show: (row) => count(row.trips) },
  {
    id: "forced", title: "Forced", value: (row) => row.forcedBy,
    show: (row) => row.forcedBy === null ? <span class="quiet">–</span> : (
      <span class="named">
        <span class="name">by {row.forcedBy}</span>
        <span class="under">{row.forcedReason} · {row.forcedUntilMs === null || row.forcedUntilMs < 0 ? "until auto" : <>ends <Time at={row.forcedUntilMs} /></>}</span>
      </span>
    ),
  },
];

export function Circuits() {
  const live = useLive<{ circuits: CircuitRow[] }>("/api/circuits", { on: ["circuit", "policy"] });
  return (
    <Page title="Circuits" lead="Every breaker in the server, also those that are part of a policy.">
      <Shown live={live}>
        {({ circuits }) => <Table label="Circuits" rows={circuits} columns={columns} id={(row) => row.key} order={{ column: "state", direction: "descending" }} empty={{ title: "No circuits yet", text: "A circuit appears with the first call that it protects." }} />}
      </Shown>
    </Page>
  );
}

const transitionColumns: Column<Transition>[] = [
  { id: "at", title: "When", numeric: true, value: (row) => row.at, show: (row) => <Time at={row.at} /> },
  { id: "state", title: "To", value: (row) => row.state, show: (row) => <span class="flow"><span class="quiet">{row.previous ?? "start"}</span> <span aria-hidden="true">→</span><span class="hidden"> to </span> <Badge state={row.state} /></span>, also: (row) => [row.previous] },
  { id: "reason", title: "Reason", value: (row) => row.reason, show: (row) => <span class="named"><span class="name plain">{row.reason}</span>{row.note && <span class="under">{row.note}</span>}</span>, also: (row) => [row.note] },
  { id: "actor", title: "Actor", value: (row) => row.actor, show: (row) => row.actor ?? <span class="quiet">–</span> },
  { id: "generation", title: "Generation", numeric: true, value: (row) => row.generation },
];

export function CircuitView({ id }: { id: string }) {
  const live = useLive<Circuit>(api(["circuits", id]), { on: ({ event, data }) => event === "circuit" && data["key"] === id });
  const [dialog, setDialog] = useState<"force" | "reset" | null>(null);
  const circuit = live.data;
  const title = circuit?.name ?? shortName(id);
  const close = (): void => setDialog(null);
  return (
    <Page
      title={title}
      crumbs={[{ title: "Circuits", href: link(["circuits"]) }]}
      badge={circuit && <Badge state={circuit.state} />}
      lead={<code>{id}</code>}
      actions={
        <>
          <ActButton needs="operate" tone="primary" onClick={() => setDialog("force")}>Force…</ActButton>
          <ActButton needs="operate" tone="danger" onClick={() => setDialog("reset")} blocked={circuit && !circuit.exists ? "There is nothing to reset: this circuit does not exist." : null}>Reset…</ActButton>
        </>
      }
    >
      <Shown live={live}>
        {(now) => !now.exists ? (
          <Empty title="This circuit does not exist">It appears with the first call that it protects. You can force it all the same.</Empty>
        ) : (
          <>
            {now.forced && (
              <p class="banner info" role="status">
                <strong>Forced{now.forced.by ? ` by ${now.forced.by}` : ""}.</strong> {now.forced.reason} Since <Time at={now.forced.since} />, {now.forced.until === null ? "until somebody sets it to auto" : <>ends <Time at={now.forced.until} /></>}
                {now.forced.endsIn ? `; then ${now.forced.endsIn}` : ""}.
              </p>
            )}
            <div class="columns">
              <Panel title="Figures">
                <Facts
                  rows={[
                    ["Admits calls", now.admits ? <Badge tone="good">yes</Badge> : <Badge tone="bad">no</Badge>],
                    ["Probes again in", now.retryAfterMs === null ? "–" : <Running ms={now.retryAfterMs} at={live.at} down />],
                    ["Failure rate", <span class="with-meter">{now.failureRatePercent} %<Meter value={now.failureRatePercent} max={100} tone={rateTone(now.failureRatePercent)} /></span>],
                    ["Slow rate", <span class="with-meter">{now.slowRatePercent} %<Meter value={now.slowRatePercent} max={100} tone={rateTone(now.slowRatePercent)} /></span>],
                    ["Calls", count(now.calls)],
                    ["Failures", `${count(now.failures)} · ${count(now.failuresInARow)} in a row`],
                    ["Slow", count(now.slow)],
                    ["Trips", count(now.trips)],
                    ["Opened", <Time at={now.openedAt} />],
                    ["Probes out", `${count(now.probesOut)} · ${count(now.successes)} succeeded`],
                    ["Generation", count(now.generation)],
                  ]}
                />
              </Panel>
              <Panel title="Configuration" aside={now.version !== null ? <span class="quiet small">version {now.version}</span> : undefined}>
                <Config value={now.config} />
              </Panel>
            </div>
            <Panel title="Transitions">
              <Table label="Transitions" rows={now.transitions} columns={transitionColumns} id={(row) => `${row.generation} ${row.at}`} order={{ column: "at", direction: "descending" }} filterable={now.transitions.length > 8} empty={{ title: "None seen", text: "This gateway shows the transitions since it was started." }} />
            </Panel>
          </>
        )}
      </Shown>
      {dialog === "force" && <Force id={id} title={title} isForced={circuit?.forced !== null && circuit?.forced !== undefined} close={close} again={live.again} />}
      {dialog === "reset" && (
        <ActDialog title={`Reset ${title}`} confirm="Reset" done={`${title} was reset`} close={close} act={async (who) => { await post(api(["circuits", id, "reset"]), who); live.again(); }}>
          <p>Forgets all figures and closes the circuit. Calls go through at once, also to a service that is still down.</p>
        </ActDialog>
      )}
    </Page>
  );
}

const MODES = [
  { id: "open", title: "Open", text: "Refuses every call." },
  { id: "closed", title: "Closed", text: "Admits every call, whatever fails." },
  { id: "open-then-probe", title: "Open, then probe", text: "Refuses every call for a time, then lets probes decide." },
  { id: "disabled", title: "Disabled", text: "Admits every call and counts nothing." },
  { id: "metrics", title: "Metrics only", text: "Counts, but never refuses." },
  { id: "auto", title: "Auto", text: "Ends what was forced; the figures decide again." },
] as const;

function Force({ id, title, isForced, close, again }: { id: string; title: string; isForced: boolean; close: () => void; again: () => void }) {
  const [mode, setMode] = useState<string>(isForced ? "auto" : "open");
  const [length, setLength] = useState("");
  const ms = parseSpan(length);
  const wrong = mode === "auto" ? null : length.trim() === "" ? (mode === "open-then-probe" ? "Needs a time, as in 30s or 5m." : null) : ms === undefined ? "A number with a unit: 30s, 5m, 2h." : null;
  return (
    <ActDialog
      title={`Force ${title}`}
      confirm={mode === "auto" ? "Back to auto" : "Force"}
      done={mode === "auto" ? `${title} decides for itself again` : `${title} is forced: ${mode}${ms ? ` for ${span(ms)}` : ""}`}
      close={close}
      act={async (who) => {
        if (wrong !== null) {
          document.getElementById("force-for")?.focus();
          throw new Error(wrong);
        }
        await post(api(["circuits", id, "force"]), { state: mode, ...(mode !== "auto" && ms !== undefined ? { forMs: ms } : {}), ...who });
        again();
      }}
    >
      <fieldset class="choices">
        <legend>State</legend>
        {MODES.map((each) => (
          <label key={each.id} class="choice">
            <input type="radio" name="state" value={each.id} checked={mode === each.id} onChange={() => setMode(each.id)} {...(mode === each.id ? { "data-first": "" } : {})} />
            <span>
              <strong>{each.title}</strong>
              <span class="quiet">{each.text}</span>
            </span>
          </label>
        ))}
      </fieldset>
      {mode !== "auto" && (
        <Field id="force-for" label={mode === "open-then-probe" ? "For" : "For (empty: until auto)"} hint="As in 30s, 5m, 2h." problem={length !== "" ? wrong : null}>
          <input id="force-for" value={length} placeholder={mode === "open-then-probe" ? "30s" : "until auto"} autoComplete="off" aria-describedby="force-for-hint" onInput={(event) => setLength(event.currentTarget.value)} />
        </Field>
      )}
    </ActDialog>
  );
}
