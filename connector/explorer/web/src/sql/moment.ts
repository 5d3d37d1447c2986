// The moment that the page shows, as clauses of a statement.

import { type Names, quotedTable } from "./names";

export interface Moment {
  table: string; // the table it belongs to; "" for none
  version: number | null; // null is the newest
  as_of: string;
}

export const NOW: Moment = { table: "", version: null, as_of: "" };

// The clauses that read a table at the moment; empty for the newest state.
export function clauseOf(moment: Moment): string {
  const version = moment.version === null ? "" : `VERSION AS OF ${moment.version}`;
  const time = moment.as_of.trim();
  const literal = /^-?\d+$/.test(time) ? time : `'${time.replaceAll("'", "''")}'`;
  return [version, time && `TIMESTAMP AS OF ${literal}`].filter(Boolean).join(" ");
}

// The statement that an empty editor begins with: the rows of the table at the moment.
export function startOf(table: string, moment: Moment, names: Names): string {
  if (!table) return "SHOW TABLES";
  const clause = clauseOf(moment);
  return `SELECT *\nFROM ${quotedTable(table, names.reserved)}${clause && ` ${clause}`}\nLIMIT 1000`;
}
