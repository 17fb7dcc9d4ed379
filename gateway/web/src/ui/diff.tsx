// What would change: by field, as the server sees it, and line by line.

import { folded, lines } from "../lib/diff";
import type { Diff } from "../lib/types";
import { text } from "./config";

export function Changes({ diff }: { diff: Diff }) {
  if (diff.changes.length === 0) return <p class="quiet">Nothing changes.</p>;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Changed fields">
      <table class="changes">
        <thead>
          <tr>
            <th scope="col">Field</th>
            <th scope="col">Before</th>
            <th scope="col">After</th>
          </tr>
        </thead>
        <tbody>
          {diff.changes.map((change) => (
            <tr key={change.path}>
              <th scope="row"><code>{change.path}</code></th>
              <td>{change.before === null ? <span class="quiet">not set</span> : <del>{text(change.before)}</del>}</td>
              <td>{change.after === null ? <span class="quiet">removed</span> : <ins>{text(change.after)}</ins>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function TextDiff({ before, after, label }: { before: string; after: string; label: string }) {
  const shown = folded(lines(before, after));
  if (shown.every((line) => line === null || line.kind === "same")) return <p class="quiet">The texts are the same.</p>;
  return (
    <div class="diff" role="region" aria-label={label} tabIndex={0}>
      {shown.map((line, at) =>
        line === null ? (
          <div class="fold" key={at} aria-hidden="true">⋯</div>
        ) : (
          <div class={`line ${line.kind}`} key={at}>
            <span class="gutter" aria-hidden="true">{line.before ?? ""}</span>
            <span class="gutter" aria-hidden="true">{line.after ?? ""}</span>
            <span class="sign">{line.kind === "added" ? "+" : line.kind === "removed" ? "−" : " "}</span>
            <code>{line.text}</code>
          </div>
        ),
      )}
    </div>
  );
}
