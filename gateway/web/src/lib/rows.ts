// Rows of tables: which stay under a filter, and in which order. Pure.

export type Value = string | number | boolean | null | undefined;
export type Direction = "ascending" | "descending";
export interface Order {
  column: string;
  direction: Direction;
}

const names = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** What is not known comes last in both directions: it is never what somebody sorted for. */
export function compare(left: Value, right: Value, direction: Direction): number {
  const leftMissing = left === null || left === undefined || left === "";
  const rightMissing = right === null || right === undefined || right === "";
  if (leftMissing || rightMissing) return Number(leftMissing) - Number(rightMissing);
  const order =
    typeof left === "string" || typeof right === "string" ? names.compare(String(left), String(right)) : Number(left) - Number(right);
  return direction === "ascending" ? order : -order;
}

/** Stable, and leaves the given rows as they are. */
export function sorted<Row>(rows: readonly Row[], value: (row: Row) => Value, direction: Direction): Row[] {
  return rows
    .map((row, at) => ({ row, at, value: value(row) }))
    .sort((left, right) => compare(left.value, right.value, direction) || left.at - right.at)
    .map(({ row }) => row);
}

/** Every word must occur in some text of the row; case does not matter, and `-word` must not occur. */
export function matches(texts: readonly Value[], filter: string): boolean {
  const words = filter.toLowerCase().split(/\s+/).filter((word) => word !== "" && word !== "-");
  if (words.length === 0) return true;
  const all = texts.map((text) => String(text ?? "").toLowerCase()).join("\n");
  return words.every((word) => (word.startsWith("-") ? !all.includes(word.slice(1)) : all.includes(word)));
}

export function turned(order: Order | undefined, column: string, first: Direction): Order {
  if (order?.column !== column) return { column, direction: first };
  return { column, direction: order.direction === "ascending" ? "descending" : "ascending" };
}
