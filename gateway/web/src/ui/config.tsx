// A configuration as the server has it: names and values, nested ones with their path.

import { Facts } from "./bits";

export function flat(value: unknown, path = ""): [string, string][] {
  if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    return Object.entries(value).flatMap(([name, inner]) => flat(inner, path === "" ? name : `${path}.${name}`));
  }
  return [[path, text(value)]];
}

export function text(value: unknown): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function Config({ value }: { value: Record<string, unknown> | null }) {
  const rows = value === null ? [] : flat(value).filter(([name]) => name !== "");
  if (rows.length === 0) return <p class="quiet pad">The defaults.</p>;
  return <Facts rows={rows.map(([name, shown]) => [name, <code key={name}>{shown}</code>] as const)} />;
}
