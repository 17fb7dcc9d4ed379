// Two texts, line by line: the shortest list of lines kept, removed and added. Pure.

export interface Line {
  kind: "same" | "removed" | "added";
  text: string;
  before: number | null;
  after: number | null;
}

export function lines(before: string, after: string): Line[] {
  const left = before === "" ? [] : before.replace(/\n$/, "").split("\n");
  const right = after === "" ? [] : after.replace(/\n$/, "").split("\n");
  // longest[i][j] is the length of the longest common sequence of left from i and right from j.
  const longest = Array.from({ length: left.length + 1 }, () => new Uint32Array(right.length + 1));
  const at = (i: number, j: number): number => longest[i]?.[j] ?? 0;
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      const row = longest[i];
      if (row) row[j] = left[i] === right[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const found: Line[] = [];
  let i = 0;
  let j = 0;
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      found.push({ kind: "same", text: left[i] ?? "", before: ++i, after: ++j });
    } else if (j >= right.length || (i < left.length && at(i + 1, j) >= at(i, j + 1))) {
      found.push({ kind: "removed", text: left[i] ?? "", before: ++i, after: null });
    } else {
      found.push({ kind: "added", text: right[j] ?? "", before: null, after: ++j });
    }
  }
  return found;
}

/** What changed with `around` lines of company; longer quiet parts become one null. */
export function folded(all: readonly Line[], around = 2): (Line | null)[] {
  const near = all.map((_, at) => all.slice(Math.max(0, at - around), at + around + 1).some((line) => line.kind !== "same"));
  const shown: (Line | null)[] = [];
  all.forEach((line, at) => {
    if (near[at]) shown.push(line);
    else if (shown.length === 0 || shown[shown.length - 1] !== null) shown.push(null);
  });
  return shown;
}

/** Where a policy's field is in its text, best effort: the line of its last name that is there, counted from 1. */
export function lineOf(document: string, field: string): number | undefined {
  const all = document.split("\n");
  let found: number | undefined;
  let from = 0;
  for (const name of field.split(".").map((part) => part.replace(/\[\d+\]$/, ""))) {
    const snake = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    const at = all.findIndex((text, line) => line >= from && [name, snake].some((word) => new RegExp(`(^|[\\s{,"'])${escape(word)}["']?\\s*:`).test(text)));
    if (at < 0) break;
    found = at + 1;
    from = at;
  }
  return found;
}

const escape = (word: string): string => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
