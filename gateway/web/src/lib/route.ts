// Where the reader is: the fragment of the address, `#/ledgers/resil%3Adlq%3A%7Borders%7D/entries?state=dead`. Pure but
// for go() and replace().

export interface Route {
  parts: string[];
  query: URLSearchParams;
}

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#/, "").split("?", 2);
  const parts = path.split("/").filter((part) => part !== "");
  return { parts: parts.map(decoded), query: new URLSearchParams(query) };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export type QueryValues = Record<string, string | number | boolean | null | undefined>;

export function query(values: QueryValues): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") given.set(name, String(value));
  }
  const text = given.toString();
  return text === "" ? "" : `?${text}`;
}

/** A link inside of the dashboard. */
export function link(parts: readonly (string | number)[], values: QueryValues = {}): string {
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}${query(values)}`;
}

/** A path of the API; every part is one segment. */
export function api(parts: readonly (string | number)[], values: QueryValues = {}): string {
  return `/api/${parts.map((part) => encodeURIComponent(part)).join("/")}${query(values)}`;
}

export function go(parts: readonly (string | number)[], values: QueryValues = {}): void {
  location.hash = link(parts, values);
}

/** Filters change the address without a new step in the history. */
export function replace(parts: readonly (string | number)[], values: QueryValues = {}): void {
  history.replaceState(null, "", link(parts, values));
  dispatchEvent(new HashChangeEvent("hashchange"));
}
