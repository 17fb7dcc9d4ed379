// The entries of a ledger: filters that live in the address, pages by cursor.

import { useEffect, useRef, useState } from "preact/hooks";
import { get, Problem } from "../lib/api";
import { extended, loading, opened, type Paged } from "../lib/pages";
import { api, link, replace } from "../lib/route";
import { hear } from "../lib/store";
import type { Entry } from "../lib/types";
import { Field } from "../ui/act";
import { Badge, ProblemBox, Skeleton, Time } from "../ui/bits";
import { Table, type Column } from "../ui/table";

const PAGE = 50;
const FILTERS = ["state", "kind", "failureClass", "group", "aggregate", "case"] as const;
const STATES = ["dead", "waiting", "taken", "parked", "resolved", "archived"];
const CLASSES = ["transient", "business", "external"];

function columns(ledger: string): Column<Entry>[] {
  return [
    { id: "id", title: "Entry", value: (row) => row.id, show: (row) => <a href={link(["ledgers", ledger, "entries", row.id])}><code>{row.id}</code></a> },
    { id: "state", title: "State", value: (row) => row.state, show: (row) => <span class="chips"><Badge state={row.state} />{row.held && <span class="chip">held</span>}</span> },
    { id: "kind", title: "Type", value: (row) => row.kind, show: (row) => <span class="named"><span class="name plain">{row.kind ?? "–"}</span>{row.aggregate && <span class="under">{row.aggregate}</span>}</span>, also: (row) => [row.aggregate, row.source] },
    { id: "error", title: "Last error", value: (row) => row.lastError, show: (row) => <span class="clip">{row.lastError ?? "–"}</span>, also: (row) => [row.group] },
    { id: "class", title: "Class", value: (row) => row.failureClass },
    { id: "attempt", title: "Attempts", numeric: true, value: (row) => row.attempt },
    { id: "reason", title: "Died of", value: (row) => row.reason },
    { id: "last", title: "Last failure", numeric: true, value: (row) => row.lastAt, show: (row) => <Time at={row.lastAt} /> },
  ];
}

export function Entries({ ledger, query, on }: { ledger: string; query: URLSearchParams; on: (event: { event: string; data: Record<string, unknown> }) => boolean }) {
  const filter = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""])) as Record<(typeof FILTERS)[number], string>;
  const path = api(["ledgers", ledger, "entries"], { ...filter, limit: PAGE });
  const [list, setList] = useState<Paged<Entry>>(() => opened(path));
  const [problem, setProblem] = useState<Problem | undefined>();
  const [hasNews, setNews] = useState(false);
  const current = useRef(path);
  current.current = path;

  const load = async (cursor: string | null): Promise<void> => {
    const asked = current.current;
    setList((now) => (cursor === null ? opened(asked) : loading(now)));
    setProblem(undefined);
    if (cursor === null) setNews(false);
    try {
      const page = await get<{ entries: Entry[]; cursor: string | null }>(cursor === null ? asked : `${asked}&cursor=${encodeURIComponent(cursor)}`);
      setList((now) => extended(now, asked, { rows: page.entries, cursor: page.cursor }, (row) => row.id));
    } catch (error) {
      if (asked !== current.current) return;
      setProblem(error instanceof Problem ? error : new Problem(0, "UNKNOWN", "Error", String(error)));
      setList((now) => ({ ...now, isLoading: false }));
    }
  };
  useEffect(() => void load(null), [path]);
  const wanted = useRef(on);
  wanted.current = on;
  useEffect(() => hear((event) => {
    if (event.event === "gap" || wanted.current(event)) setNews(true);
  }), []);

  const set = (name: string, value: string): void => replace(["ledgers", ledger, "entries"], { ...filter, [name]: value });
  const choice = (name: (typeof FILTERS)[number], label: string, values: readonly string[]) => (
    <Field id={`filter-${name}`} label={label}>
      <select id={`filter-${name}`} value={filter[name]} onChange={(event) => set(name, event.currentTarget.value)}>
        <option value="">all</option>
        {values.map((value) => <option key={value} value={value}>{value}</option>)}
      </select>
    </Field>
  );
  const typed = (name: (typeof FILTERS)[number], label: string) => (
    <Field id={`filter-${name}`} label={label}>
      <input id={`filter-${name}`} value={filter[name]} autoComplete="off" onChange={(event) => set(name, event.currentTarget.value.trim())} />
    </Field>
  );
  return (
    <>
      <form class="filters" role="search" aria-label="Filter entries" onSubmit={(event) => event.preventDefault()}>
        {choice("state", "State", STATES)}
        {choice("failureClass", "Class", CLASSES)}
        {typed("kind", "Type")}
        {typed("aggregate", "Aggregate")}
        {typed("group", "Group")}
        {typed("case", "Case")}
        {Object.values(filter).some((value) => value !== "") && <button type="button" class="button" onClick={() => replace(["ledgers", ledger, "entries"])}>Clear</button>}
      </form>
      {hasNews && (
        <p class="banner info" role="status">
          The ledger has changed. <button type="button" class="linklike" onClick={() => void load(null)}>Read it again</button>
        </p>
      )}
      {problem && <ProblemBox problem={problem} again={() => void load(list.pages === 0 ? null : list.next)} />}
      {list.pages === 0 && list.isLoading && list.rows.length === 0 ? <Skeleton rows={6} /> : list.pages > 0 ? (
        <>
          <Table label="Entries" rows={list.rows} columns={columns(ledger)} id={(row) => row.id} shownMax={10_000} empty={{ title: "No entries", text: "Nothing in this ledger matches the filter." }} />
          {list.next !== null && (
            <p class="more">
              <button type="button" class="button" aria-busy={list.isLoading} onClick={() => !list.isLoading && void load(list.next)}>
                {list.isLoading ? "Loading…" : `Load ${PAGE} more`}
              </button>
            </p>
          )}
        </>
      ) : null}
    </>
  );
}
