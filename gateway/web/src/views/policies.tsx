// Policies: those in the server and those of the file, and the way to a new one.

import { useState } from "preact/hooks";
import { useLive } from "../lib/live";
import { go, link } from "../lib/route";
import type { Policies as PolicyList, Policy } from "../lib/types";
import { ActButton, Field } from "../ui/act";
import { Empty, Panel, Shown, Time } from "../ui/bits";
import { Dialog } from "../ui/dialog";
import { Page } from "../ui/page";
import { Table, type Column } from "../ui/table";

/** The stages that a document sets: what it protects by, at a glance. */
export function stages(document: string): string[] {
  try {
    const parsed: unknown = JSON.parse(document);
    return parsed !== null && typeof parsed === "object" ? Object.keys(parsed) : [];
  } catch {
    return [];
  }
}

const columns: Column<Policy>[] = [
  { id: "name", title: "Policy", value: (row) => row.name, show: (row) => <a href={link(["policies", row.name])}>{row.name}</a> },
  { id: "version", title: "Version", numeric: true, value: (row) => row.version },
  { id: "stages", title: "Protects by", value: (row) => stages(row.document).join(" "), show: (row) => <span class="chips">{stages(row.document).map((stage) => <span class="chip" key={stage}>{stage}</span>)}</span> },
  { id: "at", title: "Changed", numeric: true, value: (row) => row.at, show: (row) => <Time at={row.at} /> },
  { id: "actor", title: "By", value: (row) => row.actor, show: (row) => <span class="named"><span class="name plain">{row.actor ?? "–"}</span>{row.reason && <span class="under">{row.reason}</span>}</span>, also: (row) => [row.reason] },
];

export function Policies() {
  const live = useLive<PolicyList>("/api/policies", { on: ["policy"] });
  const [isNew, setNew] = useState(false);
  return (
    <Page title="Policies" lead="What protects a call, as data. A change reaches every client that follows the policy." actions={<ActButton needs="govern" tone="primary" onClick={() => setNew(true)}>New policy…</ActButton>}>
      <Shown live={live}>
        {({ policies, file }) => (
          <>
            {file?.problem && (
              <p class="banner bad" role="alert">
                <strong>The policy file was not taken.</strong> {file.problem} The last good one is in force.
              </p>
            )}
            <Table label="Policies" rows={policies} columns={columns} id={(row) => row.name} order={{ column: "name", direction: "ascending" }} empty={{ title: "No policies in the server", text: "Store one here, or with RES.POLICY SET." }} />
            {file && (
              <Panel title="From the file" aside={<code class="small">{file.path}</code>}>
                {file.names.length === 0 ? <Empty title="The file has no policies" /> : <p class="pad chips">{file.names.map((name) => <span class="chip" key={name}>{name}</span>)}</p>}
              </Panel>
            )}
          </>
        )}
      </Shown>
      {isNew && <NewPolicy close={() => setNew(false)} taken={live.data?.policies.map((each) => each.name) ?? []} />}
    </Page>
  );
}

function NewPolicy({ close, taken }: { close: () => void; taken: readonly string[] }) {
  const [name, setName] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const submit = (event: Event): void => {
    event.preventDefault();
    const wanted = name.trim();
    if (wanted === "") setProblem("A policy needs a name.");
    else if (taken.includes(wanted)) setProblem("There is a policy with this name: open it to change it.");
    else {
      close();
      go(["policies", wanted], { new: 1 });
    }
  };
  return (
    <Dialog title="New policy" close={close}>
      <form onSubmit={submit} noValidate>
        <Field id="policy-name" label="Name" hint="Often the name of the service that it protects." problem={problem}>
          <input id="policy-name" value={name} autoComplete="off" aria-invalid={problem !== null} aria-describedby="policy-name-hint" onInput={(event) => setName(event.currentTarget.value)} />
        </Field>
        <div class="buttons">
          <button type="button" class="button" onClick={close}>Cancel</button>
          <button type="submit" class="button primary">Write it</button>
        </div>
      </form>
    </Dialog>
  );
}
