// One table for all lists: sorts, filters, keeps its place while rows change, and becomes cards where it is narrow. The
// roles are written out because `display: block` would take them away.

import type { ComponentChildren } from "preact";
import { useId, useMemo, useState } from "preact/hooks";
import { matches, sorted, turned, type Direction, type Order, type Value } from "../lib/rows";
import { Empty } from "./bits";

export interface Column<Row> {
  id: string;
  title: string;
  /** What is sorted and filtered by. */
  value(row: Row): Value;
  show?(row: Row): ComponentChildren;
  numeric?: boolean;
  /** Further text that the filter looks at. */
  also?(row: Row): Value[];
  /** Without a use for order, as a list of buttons is. */
  fixed?: boolean;
}

export interface TableProps<Row> {
  label: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  id(row: Row): string;
  order?: Order;
  empty: { title: string; text?: string };
  /** More than this many rows are shown in parts. */
  shownMax?: number;
  filterable?: boolean;
  tools?: ComponentChildren;
}

export function Table<Row>({ label, rows, columns, id, order: firstOrder, empty, shownMax = 200, filterable = true, tools }: TableProps<Row>) {
  const [order, setOrder] = useState<Order | undefined>(firstOrder);
  const [filter, setFilter] = useState("");
  const [shown, setShown] = useState(shownMax);
  const field = useId();
  const ordered = useMemo(() => {
    const left = rows.filter((row) => matches(columns.flatMap((column) => [column.value(row), ...(column.also?.(row) ?? [])]), filter));
    const column = columns.find((each) => each.id === order?.column);
    return column && order ? sorted(left, column.value, order.direction) : left;
  }, [rows, columns, filter, order]);
  const first = (column: Column<Row>): Direction => (column.numeric ? "descending" : "ascending");
  const sortable = columns.filter((column) => !column.fixed);

  if (rows.length === 0 && filter === "") {
    return (
      <>
        {tools && <div class="tools">{tools}</div>}
        <Empty title={empty.title}>{empty.text}</Empty>
      </>
    );
  }
  return (
    <div class="table-box">
      <div class="tools">
        {filterable && (
          <div class="field inline">
            <label for={`${field}-filter`} class="hidden">
              Filter {label.toLowerCase()}
            </label>
            <input id={`${field}-filter`} type="search" placeholder="Filter" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
          </div>
        )}
        <div class="field inline narrow-only">
          <label for={`${field}-sort`}>Sort</label>
          <select
            id={`${field}-sort`}
            value={order ? `${order.column} ${order.direction}` : ""}
            onChange={(event) => {
              const [column = "", direction = "ascending"] = event.currentTarget.value.split(" ");
              setOrder({ column, direction: direction as Direction });
            }}
          >
            {!order && <option value="">as given</option>}
            {sortable.flatMap((column) => [
              <option key={`${column.id}a`} value={`${column.id} ascending`}>{`${column.title} ↑`}</option>,
              <option key={`${column.id}d`} value={`${column.id} descending`}>{`${column.title} ↓`}</option>,
            ])}
          </select>
        </div>
        {tools}
        <span class="count quiet" role="status">
          {filter === "" ? `${rows.length}` : `${ordered.length} of ${rows.length}`}
          <span class="hidden"> rows</span>
        </span>
      </div>
      {ordered.length === 0 ? (
        <Empty title="Nothing matches the filter">
          <button type="button" class="linklike" onClick={() => setFilter("")}>
            Clear the filter
          </button>
        </Empty>
      ) : (
        <div class="scroll">
          <table role="table" aria-label={label}>
            <thead role="rowgroup">
              <tr role="row">
                {columns.map((column) => (
                  <th key={column.id} role="columnheader" scope="col" class={column.numeric ? "number" : ""} {...(order?.column === column.id ? { "aria-sort": order.direction } : {})}>
                    {column.fixed ? (
                      <span class="hidden">{column.title}</span>
                    ) : (
                      <button type="button" onClick={() => setOrder(turned(order, column.id, first(column)))}>
                        {column.title}
                        <span class="arrow" aria-hidden="true">
                          {order?.column === column.id ? (order.direction === "ascending" ? "▲" : "▼") : ""}
                        </span>
                      </button>
                    )}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody role="rowgroup">
              {ordered.slice(0, shown).map((row) => (
                <tr role="row" key={id(row)}>
                  {columns.map((column) => (
                    <td key={column.id} role="cell" data-label={column.title} class={`${column.numeric ? "number" : ""}${column.fixed ? " actions" : ""}`}>
                      {column.show ? column.show(row) : String(column.value(row) ?? "–")}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {ordered.length > shown && (
        <p class="more">
          <button type="button" class="button" onClick={() => setShown(shown + shownMax)}>
            Show {Math.min(shownMax, ordered.length - shown)} more of {ordered.length}
          </button>
        </p>
      )}
    </div>
  );
}
