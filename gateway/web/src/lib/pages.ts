// Lists that come in pages with a cursor: what was loaded, what may be loaded, and replies that come too late. Pure.

export interface Page<Row> {
  rows: Row[];
  cursor: string | null;
}

export interface Paged<Row> {
  /** A filter's name; a reply to another one is thrown away. */
  query: string;
  rows: Row[];
  next: string | null;
  isLoading: boolean;
  pages: number;
}

export function opened<Row>(query: string): Paged<Row> {
  return { query, rows: [], next: null, isLoading: true, pages: 0 };
}

/** Entries can move between two pages, so a row that is there already is shown once, in its newer form. */
export function extended<Row>(list: Paged<Row>, query: string, page: Page<Row>, id: (row: Row) => string): Paged<Row> {
  if (query !== list.query) return list;
  const fresh = new Map(page.rows.map((row) => [id(row), row]));
  const kept = list.rows.map((row) => {
    const newer = fresh.get(id(row));
    fresh.delete(id(row));
    return newer ?? row;
  });
  return { ...list, rows: [...kept, ...fresh.values()], next: page.cursor, isLoading: false, pages: list.pages + 1 };
}

export function loading<Row>(list: Paged<Row>): Paged<Row> {
  return { ...list, isLoading: true };
}
