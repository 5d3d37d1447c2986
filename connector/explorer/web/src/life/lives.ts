// Versions of keys as the server sends them.

import type { Table } from "apache-arrow";
import { type Column, cellsOf, columnsOf } from "../grid";
import type { TableFacts } from "../facts";
import { count, moment } from "../texts";

const HELPERS = ["__from", "__to", "__version", "__belief"];
const ENDS = ["valid_from", "valid_to", "_commit_version", "_end_version"];

export interface Line {
  cells: (string | null)[];
  name: string; // the key as one text
  from: number | null; // epoch milliseconds, or a version where times are unknown; null: before what is kept
  to: number | null; // null: still valid
  version: number | null;
  belief: number | null; // the version as of which this was believed
}

export interface Life {
  columns: Column[];
  lines: Line[]; // oldest first
  total: number | null;
  isTimed: boolean; // else the ends of lines are versions
}

export function lifeOf(found: Table, keys: string[]): Life {
  const columns = columnsOf(found).filter((each) => !HELPERS.includes(each.name));
  const keyAt = keys.map((name) => columns.findIndex((each) => each.name === name)).filter((at) => at >= 0);
  const helpers = HELPERS.map((name) => found.getChild(name));
  const lines = cellsOf(found).map((each, row) => {
    const [from, to, version, belief] = helpers.map((column) => (column?.get(row) ?? null) as number | null);
    const cells = each.slice(0, columns.length);
    return { cells, name: keyAt.map((at) => cells[at] ?? "null").join(", "), from, to, version, belief };
  });
  const total = found.schema.metadata.get("total");
  return { columns, lines, total: total ? Number(total) : null, isTimed: found.schema.metadata.get("timed") !== "" };
}

// The end of a line as text: a time, or a version where times are unknown.
export function endText(life: Life, end: number | null): string {
  return life.isTimed ? moment(end) : end === null ? "" : `version ${count(end)}`;
}

export function shownColumns(life: Life): { column: Column; at: number }[] {
  return life.columns.map((column, at) => ({ column, at })).filter(({ column }) => !ENDS.includes(column.name));
}

// A short text of the values of a version.
export function valuesOf(life: Life, line: Line, keys: string[]): string {
  return shownColumns(life)
    .filter(({ column, at }) => !keys.includes(column.name) && line.cells[at] !== null)
    .map(({ column, at }) => `${column.name} ${line.cells[at]}`)
    .join(", ")
    .slice(0, 300);
}

// The key's column of a timer's due time, as engines' timers have it.
export function dueColumn(table: TableFacts): string | null {
  return Object.keys(table.key ?? {}).find((name) => name.endsWith("timestamp_ms")) ?? null;
}

// The other tables of the same operator whose keys begin with the same column: the other side of a join, timers. An
// operator is recorded, or is the name before a dot. Tables without one have nothing to do with each other.
export function siblingsOf(table: TableFacts, tables: TableFacts[]): TableFacts[] {
  const operator = (each: TableFacts) => each.operator ?? (each.store.includes(".") ? each.store.slice(0, each.store.indexOf(".")) : "");
  const first = Object.entries(table.key ?? {})[0];
  if (!first || !operator(table)) return [];
  return tables
    .filter((each) => {
      const theirs = Object.entries(each.key ?? {})[0];
      return each.store !== table.store && each.kind !== null && each.last !== null && theirs !== undefined
        && operator(each) === operator(table) && theirs[0] === first[0] && theirs[1] === first[1];
    })
    .slice(0, 8);
}
