// Limits: who is refused most, the limits that policies set, and a look at one subject's limit without using it.

import { useState } from "preact/hooks";
import { get, Problem } from "../lib/api";
import { useLive } from "../lib/live";
import { api, link } from "../lib/route";
import { count, parseSpan, span } from "../lib/time";
import type { Denied, Limits, Peeked } from "../lib/types";
import { Field } from "../ui/act";
import { Badge, Empty, Facts, Key, Meter, Panel, Shown } from "../ui/bits";
import { flat } from "../ui/config";
import { Page } from "../ui/page";
import { Table, type Column } from "../ui/table";

const VIEWS: Record<string, string> = { breaker: "circuits", policy: "circuits", lock: "locks", bulkhead: "bulkheads" };

function columns(most: number): Column<Denied>[] {
  return [
    {
      id: "key", title: "Key", value: (row) => row.key, also: (row) => [row.name],
      show: (row) => {
        const view = VIEWS[row.kind];
        return view === undefined ? <Key value={row.key} name={row.name} /> : <a href={link([view, row.key])}><Key value={row.key} name={row.name} /></a>;
      },
    },
    { id: "kind", title: "Kind", value: (row) => row.kind },
    { id: "estimate", title: "Refused, last minute", numeric: true, value: (row) => row.estimate, show: (row) => <span class="with-meter">≈ {count(row.estimate)}<Meter value={row.estimate} max={most} tone="warn" /></span> },
    { id: "error", title: "Off by at most", numeric: true, value: (row) => row.error, show: (row) => count(row.error) },
  ];
}

export function LimitsView() {
  const live = useLive<Limits>("/api/limits?limit=100", { on: ["policy"] });
  return (
    <Page title="Limits" lead="Who was refused most in the last minute, by any kind of protection.">
      <Shown live={live}>
        {({ denied, limits }) => (
          <>
            <Panel title="Refused most">
              <Table label="Refused most" rows={denied} columns={columns(Math.max(1, ...denied.map((row) => row.estimate)))} id={(row) => `${row.kind} ${row.key}`} order={{ column: "estimate", direction: "descending" }} empty={{ title: "Nobody was refused", text: "In the last minute, every call was let through." }} />
            </Panel>
            <div class="columns">
              <Panel title="Limits of policies">
                {limits.length === 0 ? (
                  <Empty title="No policy limits a rate" />
                ) : (
                  <ul class="list">
                    {limits.map((each) => (
                      <li key={each.policy}>
                        <a href={link(["policies", each.policy])}>{each.policy}</a>
                        <span class="right">
                          <code>{flat(each.rateLimit).map(([name, value]) => `${name} ${value}`).join(" · ")}</code>
                        </span>
                      </li>
                    ))}
                  </ul>
                )}
              </Panel>
              <Peek />
            </div>
          </>
        )}
      </Shown>
    </Page>
  );
}

function Peek() {
  const [form, setForm] = useState({ name: "", subject: "", limit: "10", period: "1s", burst: "" });
  const [found, setFound] = useState<Peeked | undefined>();
  const [problem, setProblem] = useState<string | undefined>();
  const field = (name: keyof typeof form, label: string, hint: string) => (
    <Field id={`peek-${name}`} label={label} hint={hint}>
      <input id={`peek-${name}`} value={form[name]} autoComplete="off" aria-describedby={`peek-${name}-hint`} onInput={(event) => setForm({ ...form, [name]: event.currentTarget.value })} />
    </Field>
  );
  const look = async (event: Event): Promise<void> => {
    event.preventDefault();
    const periodMs = parseSpan(form.period);
    setFound(undefined);
    if (form.name.trim() === "" || form.subject.trim() === "") return setProblem("Give the limit's name and a subject.");
    if (periodMs === undefined) return setProblem("The period needs a unit: 1s, 1m, 1h.");
    setProblem(undefined);
    try {
      setFound(await get<Peeked>(api(["limits", "peek"], { name: form.name.trim(), subject: form.subject.trim(), limit: form.limit, periodMs, burst: form.burst })));
    } catch (error) {
      setProblem(error instanceof Problem ? error.detail : String(error));
    }
  };
  return (
    <Panel title="Look at one subject">
      <form class="pad" onSubmit={(event) => void look(event)} noValidate>
        <div class="form-grid">
          {field("name", "Limit", "Its name, as in api.")}
          {field("subject", "Subject", "A user, a tenant, an address.")}
          {field("limit", "Calls", "How many.")}
          {field("period", "Per", "As in 1s or 1m.")}
          {field("burst", "Burst", "Empty: the limit.")}
        </div>
        <button type="submit" class="button">Look</button>
        {problem && <p class="form-problem" role="alert">{problem}</p>}
        <div role="status">
          {found && (
            <Facts
              rows={[
                ["Next call", found.allowed ? <Badge tone="good">allowed</Badge> : <Badge tone="bad">refused</Badge>],
                ["Left", `${count(found.remaining)} of ${count(found.limit)}`],
                ["Retry after", found.retryAfterMs === null ? "–" : span(found.retryAfterMs)],
                ["Full again in", found.resetAfterMs === null ? "–" : span(found.resetAfterMs)],
              ]}
            />
          )}
        </div>
      </form>
    </Panel>
  );
}
