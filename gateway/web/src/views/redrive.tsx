// The redrive wizard: filter → dry run → rate → progress → verified. Nothing is delivered before the last button of the
// third step; from then on the server's phase is what is shown.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { post, Problem } from "../lib/api";
import type { Live } from "../lib/live";
import { body, leastMs, refusal, STEPS, stepOf, wrongNumber, type Filter, type Rate, type Step } from "../lib/redrive";
import { api, link } from "../lib/route";
import { count, plural, span } from "../lib/time";
import type { Case, CaseProgress, DryRun, Progress } from "../lib/types";
import { ActButton, ActDialog, Field } from "../ui/act";
import { Badge, Empty, Facts, Meter, Panel, Shown, Time } from "../ui/bits";

const TITLES: Record<Step, string> = { filter: "Filter", "dry run": "Dry run", rate: "Rate", progress: "Progress", verified: "Verified" };

export function Redrive({ ledger, it, live, again, wanted }: { ledger: string; it: Case; live: Live<CaseProgress>; again: () => void; wanted: string | null }) {
  const [chosen, setChosen] = useState<Step>(wanted === "rate" ? "rate" : "filter");
  const [isAgain, setAgain] = useState(false);
  const [filter, setFilter] = useState<Filter>({ id: "", kind: "", aggregate: "", count: "" });
  const [rate, setRate] = useState<Rate>({ count: "100", periodMs: 60_000, first: "10", oneshot: false });
  const [tried, setTried] = useState<DryRun | undefined>();
  const [problem, setProblem] = useState<Problem | undefined>();
  const [dialog, setDialog] = useState<"start" | "stop" | null>(null);
  const step = stepOf(chosen, live.data, isAgain);
  const heading = useRef<HTMLHeadingElement>(null);
  const shownBefore = useRef(step);
  const path = (what: string): string => api(["ledgers", ledger, "cases", it.case, what]);
  const why = refusal(it);

  // The next step is read from its heading, but nobody is torn away when the page opens.
  useLayoutEffect(() => {
    if (shownBefore.current !== step) heading.current?.focus();
    shownBefore.current = step;
  }, [step]);

  const dryRun = async (event?: Event): Promise<void> => {
    event?.preventDefault();
    if (filter.count !== "" && wrongNumber(filter.count, 1, 1_000_000) !== null) return document.getElementById("redrive-count")?.focus();
    setProblem(undefined);
    setTried(undefined);
    setChosen("dry run");
    try {
      setTried(await post<DryRun>(path("dry-run"), body(filter, rate)));
    } catch (error) {
      setProblem(error instanceof Problem ? error : new Problem(0, "UNKNOWN", "Error", String(error)));
    }
  };
  const wrong = { count: wrongNumber(rate.count, 1, 1_000_000), first: wrongNumber(rate.first, 0, 1_000_000) };

  if (why !== null && live.data?.verified !== true && live.data?.progress == null) {
    return <Panel title="Redrive"><Empty title="No redrive">{why}</Empty></Panel>;
  }
  return (
    <Panel title="Redrive" aside={live.data?.progress ? <Badge state={live.data.verified ? "verified" : live.data.progress.phase} /> : undefined}>
      <ol class="steps" aria-label="Steps of the redrive">
        {STEPS.map((each, at) => {
          const reached = STEPS.indexOf(step);
          const state = step === "verified" || at < reached ? "past" : at === reached ? "now" : "later";
          return (
            <li key={each} class={state} {...(state === "now" || (step === "verified" && each === "verified") ? { "aria-current": "step" as const } : {})}>
              <span class="number" aria-hidden="true">{state === "past" ? "✓" : at + 1}</span>
              {TITLES[each]}
              {state === "past" && <span class="hidden"> (done)</span>}
            </li>
          );
        })}
      </ol>
      <div class="pad" role="group" aria-labelledby="step-title">
        <h3 id="step-title" ref={heading} tabIndex={-1} class={step === "progress" || step === "verified" ? "hidden" : ""}>{TITLES[step]}</h3>
        {step === "filter" && (
          <form onSubmit={(event) => void dryRun(event)} noValidate>
            <p class="lead">Everything of the case that is dead, or a part of it.</p>
            <div class="form-grid">
              {([["kind", "Type", "Empty: all."], ["aggregate", "Aggregate", "Empty: all."], ["id", "Entry", "Its id; empty: all."], ["count", "At most", "How many; empty: all."]] as const).map(([name, label, hint]) => (
                <Field key={name} id={`redrive-${name}`} label={label} hint={hint} problem={name === "count" && filter.count !== "" ? wrongNumber(filter.count, 1, 1_000_000) : null}>
                  <input id={`redrive-${name}`} value={filter[name]} autoComplete="off" inputMode={name === "count" ? "numeric" : "text"} aria-describedby={`redrive-${name}-hint`} onInput={(event) => setFilter({ ...filter, [name]: event.currentTarget.value })} />
                </Field>
              ))}
            </div>
            <div class="buttons start">
              <button type="submit" class="button primary">Dry run</button>
            </div>
          </form>
        )}
        {step === "dry run" && (
          <>
            <div role="status">
              {problem ? <p class="form-problem"><strong>{problem.title}.</strong> {problem.detail}{problem.more.reason ? ` (${problem.more.reason})` : ""}</p> : tried === undefined ? <p>Counting what would be redriven…</p> : (
                <>
                  <p class="big"><strong>{plural(tried.matched, "entry", "entries")}</strong>{tried.complete ? "" : " or more"} would be delivered again. Nothing was changed.</p>
                  {tried.sample.length > 0 && (
                    <p class="small">For example {tried.sample.slice(0, 8).map((id, at) => <span key={id}>{at > 0 ? ", " : ""}<a href={link(["ledgers", ledger, "entries", id])}><code>{id}</code></a></span>)}.</p>
                  )}
                </>
              )}
            </div>
            <div class="buttons start">
              <button type="button" class="button" onClick={() => setChosen("filter")}>Back to the filter</button>
              {tried !== undefined && tried.matched > 0 && <button type="button" class="button primary" onClick={() => setChosen("rate")}>Choose the rate</button>}
            </div>
          </>
        )}
        {step === "rate" && (
          <form onSubmit={(event) => { event.preventDefault(); if (wrong.count === null && wrong.first === null) setDialog("start"); else document.getElementById(wrong.count !== null ? "rate-count" : "rate-first")?.focus(); }} noValidate>
            <p class="lead">The rate holds for all workers together. The first ones are tried before the rest follow.</p>
            <div class="form-grid">
              <Field id="rate-count" label="Entries" hint="How many in a period." problem={wrong.count}>
                <input id="rate-count" inputMode="numeric" autoComplete="off" value={rate.count} aria-invalid={wrong.count !== null} aria-describedby="rate-count-hint" onInput={(event) => setRate({ ...rate, count: event.currentTarget.value })} />
              </Field>
              <Field id="rate-period" label="Per" hint="The period.">
                <select id="rate-period" value={String(rate.periodMs)} aria-describedby="rate-period-hint" onChange={(event) => setRate({ ...rate, periodMs: Number(event.currentTarget.value) })}>
                  <option value="1000">second</option>
                  <option value="60000">minute</option>
                  <option value="3600000">hour</option>
                </select>
              </Field>
              <Field id="rate-first" label="First" hint="Tried before the rest; half must be resolved." problem={wrong.first}>
                <input id="rate-first" inputMode="numeric" autoComplete="off" value={rate.first} aria-invalid={wrong.first !== null} aria-describedby="rate-first-hint" onInput={(event) => setRate({ ...rate, first: event.currentTarget.value })} />
              </Field>
            </div>
            <label class="check">
              <input type="checkbox" checked={rate.oneshot} onChange={(event) => setRate({ ...rate, oneshot: event.currentTarget.checked })} /> One attempt each: what fails again is dead at once
            </label>
            {tried && wrong.count === null && <p class="small quiet" role="status">{plural(tried.matched, "entry takes", "entries take")} at least {span(leastMs(tried.matched, rate))}.</p>}
            <div class="buttons start">
              <button type="button" class="button" onClick={() => void dryRun()}>Back to the dry run</button>
              <ActButton needs="govern" tone="primary" blocked={why ?? (wrong.count ?? wrong.first)} onClick={() => setDialog("start")}>Start the redrive…</ActButton>
            </div>
          </form>
        )}
        {(step === "progress" || step === "verified") && (
          <Shown live={live} rows={3}>
            {(now) => (
              <>
                {now.verified ? (
                  <p class="verified" role="status"><Badge state="verified" /> Everything under this case is resolved. {it.closedAt === null ? "The case can be closed." : ""}</p>
                ) : (
                  <p class="big" role="status">{now.progress ? PHASES[now.progress.phase] : ""}</p>
                )}
                {now.progress && <Figures progress={now.progress} unresolved={now.unresolved} matched={tried?.matched ?? 0} />}
                <div class="buttons start">
                  {now.progress !== null && ["running", "verifying"].includes(now.progress.phase) && <ActButton needs="operate" tone="danger" onClick={() => setDialog("stop")}>Stop…</ActButton>}
                  {!now.verified && now.progress !== null && ["stopped", "failed", "finished"].includes(now.progress.phase) && it.closedAt === null && <button type="button" class="button" onClick={() => { setAgain(true); setChosen("filter"); }}>Redrive what is left</button>}
                  <a class="button" href={link(["ledgers", ledger, "entries"], { case: it.case })}>Entries of the case</a>
                </div>
              </>
            )}
          </Shown>
        )}
      </div>
      {dialog === "start" && (
        <ActDialog
          title={`Redrive case ${it.case}`}
          confirm="Start"
          tone="primary"
          reason={false}
          done={`The redrive of case ${it.case} has started`}
          close={() => setDialog(null)}
          act={async ({ actor }) => {
            await post(path("redrive"), { ...body(filter, rate), actor });
            setAgain(false);
            setChosen("progress");
            again();
          }}
        >
          <p>
            Delivers {tried ? `${plural(tried.matched, "entry", "entries")}${tried.complete ? "" : " or more"}` : "what the filter matches"} again, at most {rate.count} per {span(rate.periodMs)}, {rate.first} first. It stops itself when most of them die again.
          </p>
        </ActDialog>
      )}
      {dialog === "stop" && (
        <ActDialog title={`Stop the redrive of case ${it.case}`} confirm="Stop" reason={false} done="No more entries are given out" close={() => setDialog(null)} act={async ({ actor }) => { await post(path("stop"), { actor }); again(); }}>
          <p>Gives out no more dead entries. What was given out before is retried as usual.</p>
        </ActDialog>
      )}
    </Panel>
  );
}

const PHASES: Record<Progress["phase"], string> = {
  running: "Entries are given out at the rate.",
  verifying: "The first ones are tried. The rest follows when half of them are resolved.",
  draining: "Everything was given out; some are still at work.",
  stopped: "Stopped. What was given out before is retried as usual.",
  failed: "It stopped itself: most of the last outcomes died again. The fix does not hold.",
  finished: "Everything was given out, but not everything is resolved.",
};

function Figures({ progress, unresolved, matched }: { progress: Progress; unresolved: number | null; matched: number }) {
  const total = Math.max(matched, progress.given, 1);
  return (
    <>
      <div class="progress">
        <Meter value={progress.resolved} max={total} tone="good" />
      </div>
      <Facts
        rows={[
          ["Given out", matched > 0 ? `${count(progress.given)} of ${count(matched)}` : count(progress.given)],
          ["Resolved", count(progress.resolved)],
          ["Died again", count(progress.died)],
          ["At work", count(progress.active)],
          ["Not resolved", unresolved === null ? "–" : count(unresolved)],
          ["Rate", `${count(progress.rate.count)} per ${span(progress.rate.periodMs)}${progress.oneshot ? ", one attempt each" : ""}`],
          ["Started", <Time at={progress.startedAt} />],
        ]}
      />
    </>
  );
}
