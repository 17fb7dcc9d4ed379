// One policy: its text, checked while it is typed; what would change, before it is saved; its versions, and the way back
// to one. A save names the version that it was made from, so nobody overwrites what they have not seen.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { get, post, Problem } from "../lib/api";
import { lineOf } from "../lib/diff";
import { useLive } from "../lib/live";
import { api, go, link } from "../lib/route";
import { may } from "../lib/roles";
import { session, tell, useCell } from "../lib/store";
import type { Checked, Diff, Policy, PolicyVersion } from "../lib/types";
import { ActButton, ActDialog } from "../ui/act";
import { Dialog as Box } from "../ui/dialog";
import { Badge, Empty, Panel, Shown, Time } from "../ui/bits";
import { Changes, TextDiff } from "../ui/diff";
import { Page } from "../ui/page";
import { Table, type Column } from "../ui/table";

const STARTER = `{
  "timeout": { "attempt": "250ms", "total": "2s" },
  "retry": { "maxAttempts": 3 },
  "breaker": { "consecutiveFailures": 5, "openFor": "30s" }
}
`;
const CHECK_AFTER_MS = 300;

type Dialog = { kind: "save"; diff: Diff } | { kind: "rollback"; to: number; diff: Diff } | { kind: "delete" } | { kind: "compare"; diff: Diff; version: number } | null;

export function PolicyView({ name, isNew }: { name: string; isNew: boolean }) {
  const concerns = { on: ({ event, data }: { event: string; data: Record<string, unknown> }) => event === "policy" && data["name"] === name };
  const live = useLive<Policy>(api(["policies", name]), concerns);
  const history = useLive<{ versions: PolicyVersion[] }>(api(["policies", name, "history"]), concerns);
  const isMissing = live.data === undefined && live.problem?.status === 404;
  const [isCreating, setCreating] = useState(isNew);
  const stored = isMissing ? null : live.data;
  return (
    <Page
      title={name}
      crumbs={[{ title: "Policies", href: link(["policies"]) }]}
      badge={stored ? <span class="chip">version {stored.version}</span> : isMissing ? <Badge tone="info">not stored</Badge> : undefined}
      lead={stored ? <>Changed <Time at={stored.at} />{stored.actor ? ` by ${stored.actor}` : ""}{stored.reason ? `: ${stored.reason}` : ""}</> : undefined}
    >
      {isMissing && !isCreating ? (
        <Empty title="There is no such policy">
          <button type="button" class="linklike" onClick={() => setCreating(true)}>Write it</button>
        </Empty>
      ) : isMissing ? (
        <Editor name={name} stored={null} again={() => { live.again(); history.again(); }} />
      ) : (
        <Shown live={live} rows={8}>{(policy) => <Editor name={name} stored={policy} again={() => { live.again(); history.again(); }} />}</Shown>
      )}
      {!(isMissing && isCreating) && (
        <Panel title="History">
          <Shown live={history} rows={3}>
            {({ versions }) => <History name={name} versions={versions} current={stored?.version ?? null} again={() => { live.again(); history.again(); }} />}
          </Shown>
        </Panel>
      )}
    </Page>
  );
}

function Editor({ name, stored, again }: { name: string; stored: Policy | null; again: () => void }) {
  // What the text was made from. It stays while the reader edits, whatever others save.
  const [base, setBase] = useState<Policy | null>(stored);
  const [text, setText] = useState(stored?.document ?? STARTER);
  const [checked, setChecked] = useState<Checked | undefined>();
  const [dialog, setDialog] = useState<Dialog>(null);
  const area = useRef<HTMLTextAreaElement>(null);
  const role = useCell(session)?.role ?? null;
  const isChanged = text !== (base?.document ?? STARTER);
  const isBehind = (stored?.version ?? 0) !== (base?.version ?? 0);

  // Without changes of one's own there is nothing to keep: follow the stored one, before anybody can type.
  useLayoutEffect(() => {
    if (isBehind && !isChanged) {
      setBase(stored);
      setText(stored?.document ?? STARTER);
    }
  }, [stored?.version]);

  useEffect(() => {
    let isCurrent = true;
    const timer = setTimeout(() => {
      post<Checked>(api(["policies", "check"]), { document: text })
        .then((reply) => isCurrent && setChecked(reply))
        .catch(() => isCurrent && setChecked(undefined));
    }, CHECK_AFTER_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [text]);

  useEffect(() => {
    if (!isChanged) return;
    const warn = (event: BeforeUnloadEvent): void => event.preventDefault();
    addEventListener("beforeunload", warn);
    return () => removeEventListener("beforeunload", warn);
  }, [isChanged]);

  const review = async (): Promise<void> => {
    try {
      setDialog({ kind: "save", diff: await differences(name, { document: text }, stored?.version ?? null) });
    } catch (error) {
      tell("problem", error instanceof Error ? error.message : String(error));
    }
  };
  const jump = (line: number): void => {
    const field = area.current;
    if (!field) return;
    const from = text.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    field.focus();
    field.setSelectionRange(from, from + (text.split("\n")[line - 1]?.length ?? 0));
  };
  const wrongLine = checked && !checked.valid ? lineOf(text, checked.field) : undefined;
  const isBlocked = checked && !checked.valid ? "The document is not valid." : !isChanged && base !== null ? "Nothing was changed." : isBehind ? "Another version was stored meanwhile: look at it first." : null;

  return (
    <Panel title="Document" aside={<CheckState checked={checked} />}>
      <div class="pad">
        {isBehind && isChanged && dialog === null && <Conflict name={name} mine={text} base={base} stored={stored} keep={() => setBase(stored)} drop={() => { setBase(stored); setText(stored?.document ?? STARTER); }} />}
        <label for="document" class="hidden">Document, JSON or YAML</label>
        <textarea id="document" ref={area} class="code" spellcheck={false} autoComplete="off" wrap="off" rows={Math.min(28, Math.max(12, text.split("\n").length + 1))} value={text} readOnly={!may(role, "govern")} aria-invalid={checked !== undefined && !checked.valid} aria-describedby="document-check" onInput={(event) => setText(event.currentTarget.value)} />
        <p id="document-check" class={`hint${checked && !checked.valid ? " wrong" : ""}`} role="status">
          {checked === undefined ? "JSON or YAML. Checked while you type." : checked.valid ? "The document is valid." : <>
            <code>{checked.field}</code> {checked.message}{" "}
            {wrongLine !== undefined && <button type="button" class="linklike" onClick={() => jump(wrongLine)}>Line {wrongLine}</button>}
          </>}
        </p>
        <div class="buttons start">
          <ActButton needs="govern" tone="primary" blocked={isBlocked} onClick={() => void review()}>Review and save…</ActButton>
          {isChanged && base !== null && <button type="button" class="button" onClick={() => setText(base.document)}>Undo my changes</button>}
          {checked?.valid && may(role, "govern") && checked.canonical.trim() !== text.trim() && <button type="button" class="button" onClick={() => setText(pretty(checked.canonical))}>Format</button>}
          {stored !== null && <ActButton needs="govern" tone="danger" onClick={() => setDialog({ kind: "delete" })}>Delete…</ActButton>}
        </div>
      </div>
      {dialog?.kind === "save" && (
        <ActDialog
          title={stored === null ? `Store ${name}` : `Save ${name}`}
          wide
          tone="primary"
          confirm="Save"
          done={`${name} was saved`}
          close={() => setDialog(null)}
          problem={(problem) => {
            if (problem.code !== "VERSION_CONFLICT") return false;
            setDialog(null);
            tell("problem", "Somebody stored another version meanwhile. Nothing was saved.");
            again();
            return true;
          }}
          act={async (who) => {
            const saved = await post<{ version: number }>(api(["policies", name]), { document: text, expectedVersion: base?.version ?? 0, ...who });
            const now = await get<Policy>(api(["policies", name]));
            setBase({ ...now, version: saved.version });
            setText(now.document);
            again();
          }}
        >
          <Changes diff={dialog.diff} />
          <TextDiff before={base?.document ?? ""} after={checked?.valid ? pretty(checked.canonical) : text} label="The text, line by line" />
        </ActDialog>
      )}
      {dialog?.kind === "delete" && (
        <ActDialog title={`Delete ${name}`} confirm="Delete" done={`${name} was deleted`} close={() => setDialog(null)} act={async (who) => { await post(api(["policies", name, "delete"]), { expectedVersion: stored?.version, ...who }); go(["policies"]); }}>
          <p>Clients that follow this policy then use their own default. Its versions stay in the history.</p>
        </ActDialog>
      )}
    </Panel>
  );
}

function CheckState({ checked }: { checked: Checked | undefined }) {
  if (checked === undefined) return <Badge tone="idle">checking</Badge>;
  return checked.valid ? <Badge tone="good">valid</Badge> : <Badge tone="bad">not valid</Badge>;
}

function Conflict({ mine, base, stored, keep, drop }: { name: string; mine: string; base: Policy | null; stored: Policy | null; keep: () => void; drop: () => void }) {
  return (
    <div class="conflict" role="alert">
      <p>
        <strong>{stored === null ? "The policy was deleted meanwhile." : `Version ${stored.version} was stored meanwhile`}</strong>
        {stored?.actor ? ` by ${stored.actor}` : ""}{stored?.reason ? `: ${stored.reason}` : ""}. Your text was made from {base === null ? "nothing" : `version ${base.version}`}.
      </p>
      <TextDiff before={stored?.document ?? ""} after={mine} label="From the stored version to yours" />
      <div class="buttons start">
        <button type="button" class="button" onClick={keep}>Keep my text, on top of it</button>
        <button type="button" class="button" onClick={drop}>Take the stored one</button>
      </div>
    </div>
  );
}

function History({ name, versions, current, again }: { name: string; versions: PolicyVersion[]; current: number | null; again: () => void }) {
  const [dialog, setDialog] = useState<Dialog>(null);
  const open = async (kind: "rollback" | "compare", version: number): Promise<void> => {
    try {
      const diff = await differences(name, { version }, current);
      setDialog(kind === "rollback" ? { kind, to: version, diff } : { kind, version, diff });
    } catch (error) {
      tell("problem", error instanceof Problem ? error.detail : String(error));
    }
  };
  const columns: Column<PolicyVersion>[] = [
    { id: "version", title: "Version", numeric: true, value: (row) => row.version, show: (row) => <>{row.version} {row.version === current && <span class="chip">now</span>}{row.deleted && <span class="chip">deleted</span>}</> },
    { id: "at", title: "When", numeric: true, value: (row) => row.at, show: (row) => <Time at={row.at} /> },
    { id: "actor", title: "By", value: (row) => row.actor },
    { id: "reason", title: "Reason", value: (row) => row.reason },
    {
      id: "actions", title: "Actions", fixed: true, value: () => null,
      show: (row) => row.deleted || row.version === current ? null : (
        <span class="buttons">
          <button type="button" class="button small" aria-label={`Compare version ${row.version} with the stored one`} onClick={() => void open("compare", row.version)}>Compare</button>
          <ActButton needs="govern" small onClick={() => void open("rollback", row.version)} label={`Roll back… to version ${row.version}`}>Roll back…</ActButton>
        </span>
      ),
    },
  ];
  return (
    <>
      <Table label="History" rows={versions} columns={columns} id={(row) => String(row.version)} order={{ column: "version", direction: "descending" }} filterable={false} empty={{ title: "No versions yet" }} />
      {dialog?.kind === "rollback" && (
        <ActDialog title={`Roll back to version ${dialog.to}`} wide confirm="Roll back" done={`${name} is back at version ${dialog.to}`} close={() => setDialog(null)} act={async (who) => { await post(api(["policies", name, "rollback"]), { version: dialog.to, ...(current === null ? {} : { expectedVersion: current }), ...who }); again(); }}>
          <p>Stores the text of version {dialog.to} as a new version. What changes for clients:</p>
          <Changes diff={dialog.diff} />
        </ActDialog>
      )}
      {dialog?.kind === "compare" && <Compare name={name} version={dialog.version} diff={dialog.diff} close={() => setDialog(null)} />}
    </>
  );
}


function Compare({ name, version, diff, close }: { name: string; version: number; diff: Diff; close: () => void }) {
  const old = useLive<Policy>(api(["policies", name, "versions", version]), { everyMs: 600_000 });
  return (
    <Box title={`Version ${version} beside the stored one`} close={close} wide>
      <Changes diff={diff} />
      <Shown live={old} rows={4}>{(policy) => <pre class="code" tabIndex={0} aria-label={`The text of version ${version}`}>{policy.document}</pre>}</Shown>
      <div class="buttons">
        <button type="button" class="button" onClick={close}>Close</button>
      </div>
    </Box>
  );
}

function differences(name: string, what: { document: string } | { version: number }, against: number | null): Promise<Diff> {
  return post<Diff>(api(["policies", name, "diff"]), { ...what, ...(against === null ? {} : { against }) });
}

function pretty(canonical: string): string {
  try {
    return JSON.stringify(JSON.parse(canonical), null, 2);
  } catch {
    return canonical;
  }
}
