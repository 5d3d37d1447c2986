// What the server tells of places and tables.

export interface TableFacts {
  store: string;
  kind: string | null;
  key: Record<string, string> | null;
  value: Record<string, string> | null;
  keys: number | null;
  bytes: number | null;
  version: number | null;
  last_commit: string | null;
  health: string[];
  status: string;
  first: number | null;
  last: number | null;
  columns: string[];
  fields: string[]; // the columns, each before the fields of its struct
  operator: string | null;
  editable: boolean; // the state of an engine, of which a changed copy can be made
}

export interface PlaceFacts {
  place: number;
  path: string;
  tables: TableFacts[];
  error: string | null;
  marks: Record<string, string> | null; // of each table, another one when it has a newer version; null if the place is closed
}
