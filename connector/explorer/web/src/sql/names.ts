// The names that a statement may use, as the server lists them.

import { useEffect, useState } from "preact/hooks";
import { askJson } from "../asking";

export interface NamedTable {
  name: string;
  columns: { name: string; type: string }[];
  metadata: boolean;
}

export interface Names {
  tables: NamedTable[];
  functions: { name: string; kind: string; signature: string; description: string }[];
  words: string[];
  reserved: string[];
  types: string[];
}

export const NO_NAMES: Names = { tables: [], functions: [], words: [], reserved: [], types: [] };

export function useNames(place: string): Names {
  const [names, setNames] = useState(NO_NAMES);
  useEffect(() => {
    const stop = new AbortController();
    // Without them the editor completes nothing, and an answer says what is wrong.
    askJson<Names>("sql/names", { place }, stop.signal).then(setNames, () => undefined);
    return () => stop.abort();
  }, [place]);
  return names;
}

export function quoted(name: string, reserved: string[] = []): string {
  const plain = /^[a-z_][a-z0-9_$]*$/i.test(name) && !reserved.includes(name.toLowerCase());
  return plain ? name : `"${name.replaceAll('"', '""')}"`;
}

// The name of a table; one of a keyed store has the name of the store before a dot.
export function quotedTable(name: string, reserved: string[] = []): string {
  const dot = name.indexOf(".");
  return dot < 0 ? quoted(name, reserved) : `${quoted(name.slice(0, dot), reserved)}.${quoted(name.slice(dot + 1), reserved)}`;
}
