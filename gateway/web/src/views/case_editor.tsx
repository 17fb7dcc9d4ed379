// The case editor: a root cause in writing. Saving it unlocks the redrive of its groups.

import { useState } from "preact/hooks";
import { post, Problem } from "../lib/api";
import { useLive } from "../lib/live";
import { api, go, link } from "../lib/route";
import { whyNot } from "../lib/roles";
import { actor, session, tell, useCell } from "../lib/store";
import { count, parseSpan } from "../lib/time";
import type { Group } from "../lib/types";
import { Field } from "../ui/act";
import { Panel } from "../ui/bits";
import { Page } from "../ui/page";
import { shortName } from "./all";

const CATEGORIES = [
  { id: "infrastructure", title: "Infrastructure", text: "Something was down or slow. Its redrive can go on by itself for a time." },
  { id: "contract", title: "Contract", text: "A producer and a consumer disagreed." },
  { id: "business", title: "Business", text: "A rule refused it. Somebody must decide what happens." },
  { id: "poison", title: "Poison", text: "It can never be handled. It is only discarded." },
] as const;

export function NewCase({ ledger, groups: given }: { ledger: string; groups: readonly string[] }) {
  const known = useLive<{ groups: Group[] }>(api(["ledgers", ledger, "groups"]));
  const [groups, setGroups] = useState<readonly string[]>(given);
  const [category, setCategory] = useState<string>("infrastructure");
  const [text, setText] = useState({ cause: "", fix: "", decision: "", auto: "", actor: actor.get() });
  const [isTried, setTried] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | undefined>();
  const role = useCell(session)?.role ?? null;
  const refused = whyNot(role, "govern");
  const autoMs = parseSpan(text.auto);
  const wrong: Record<string, string | null> = {
    cause: text.cause.trim() === "" ? "What went wrong, and why?" : null,
    fix: category !== "poison" && text.fix.trim() === "" ? "What was changed so that it goes well now?" : null,
    decision: category === "business" && text.decision.trim() === "" ? "Who decided, and what?" : null,
    auto: category === "infrastructure" && text.auto.trim() !== "" && autoMs === undefined ? "A number with a unit: 30m, 2h." : null,
    actor: text.actor.trim() === "" ? "This is required." : null,
  };
  const set = (name: keyof typeof text) => (event: { currentTarget: { value: string } }) => setText({ ...text, [name]: event.currentTarget.value });
  const shownProblem = (name: string): string | null => (isTried ? (wrong[name] ?? null) : null);

  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setTried(true);
    const first = Object.keys(wrong).find((name) => wrong[name] !== null);
    if (first !== undefined) return document.getElementById(`case-${first}`)?.focus();
    if (groups.length === 0 || isBusy || refused !== null) return;
    setBusy(true);
    setProblem(undefined);
    try {
      const reply = await post<{ case: number }>(api(["ledgers", ledger, "cases"]), {
        groups,
        category,
        cause: text.cause.trim(),
        fix: text.fix.trim(),
        decision: text.decision.trim() === "" ? null : text.decision.trim(),
        autoMs: category === "infrastructure" ? (autoMs ?? null) : null,
        actor: text.actor.trim(),
      });
      actor.set(text.actor.trim());
      tell("done", `Case ${reply.case} is open`);
      go(["ledgers", ledger, "cases", reply.case]);
    } catch (error) {
      setProblem(error instanceof Problem ? error : new Problem(0, "UNKNOWN", "Error", String(error)));
      setBusy(false);
    }
  };
  const area = (name: "cause" | "fix" | "decision", label: string, hint: string) => (
    <Field id={`case-${name}`} label={label} hint={hint} problem={shownProblem(name)}>
      <textarea id={`case-${name}`} rows={2} value={text[name]} aria-invalid={shownProblem(name) !== null} aria-describedby={`case-${name}-hint`} onInput={set(name)} />
    </Field>
  );
  return (
    <Page
      title="New case"
      crumbs={[{ title: "Dead letters", href: link(["ledgers"]) }, { title: shortName(ledger), href: link(["ledgers", ledger]) }, { title: "Cases", href: link(["ledgers", ledger, "cases"]) }]}
      lead="A written cause and fix unlock the redrive of these groups. Both are kept in the audit."
    >
      <form class="narrow" onSubmit={(event) => void submit(event)} noValidate>
        <Panel title="Groups">
          {groups.length === 0 ? <p class="pad wrong" role="alert">No group is chosen. <a href={link(["ledgers", ledger, "groups"])}>Choose groups</a></p> : (
            <ul class="list">
              {groups.map((group) => (
                <li key={group}>
                  <span>{group}</span>
                  <span class="right">
                    <span class="quiet small">{count(known.data?.groups.find((each) => each.group === group)?.dead ?? 0)} dead</span>
                    <button type="button" class="button small" aria-label={`Leave out ${group}`} onClick={() => setGroups(groups.filter((each) => each !== group))}>Leave out</button>
                  </span>
                </li>
              ))}
            </ul>
          )}
        </Panel>
        <Panel title="Root cause">
          <div class="pad">
            <fieldset class="choices two">
              <legend>Category</legend>
              {CATEGORIES.map((each) => (
                <label key={each.id} class="choice">
                  <input type="radio" name="category" value={each.id} checked={category === each.id} onChange={() => setCategory(each.id)} />
                  <span><strong>{each.title}</strong><span class="quiet">{each.text}</span></span>
                </label>
              ))}
            </fieldset>
            {area("cause", "Cause", "What went wrong, and why.")}
            {area("fix", category === "poison" ? "Fix (may be empty)" : "Fix", "What was changed, with a link or a number.")}
            {category === "business" && area("decision", "Decision", "Who decided that these are handled again, and how.")}
            {category === "infrastructure" && (
              <Field id="case-auto" label="Redrive later deaths by itself for (may be empty)" hint="As in 30m or 2h: what dies of this cause within that time is redriven after a quiet minute." problem={shownProblem("auto")}>
                <input id="case-auto" value={text.auto} autoComplete="off" aria-describedby="case-auto-hint" onInput={set("auto")} />
              </Field>
            )}
            <Field id="case-actor" label="Your name" hint="Goes into the audit." problem={shownProblem("actor")}>
              <input id="case-actor" value={text.actor} autoComplete="username" maxLength={128} aria-invalid={shownProblem("actor") !== null} aria-describedby="case-actor-hint" onInput={set("actor")} />
            </Field>
            {problem && <p class="form-problem" role="alert"><strong>{problem.title}.</strong> {problem.detail}</p>}
            <div class="buttons start">
              <button type="submit" class="button primary" aria-busy={isBusy} {...(refused !== null ? { "aria-disabled": "true" as const, "aria-describedby": "case-refused" } : {})}>{isBusy ? "Opening…" : "Open the case"}</button>
              <a class="button" href={link(["ledgers", ledger])}>Cancel</a>
            </div>
            {refused !== null && <p class="hint" id="case-refused">{refused}</p>}
          </div>
        </Panel>
      </form>
    </Page>
  );
}
