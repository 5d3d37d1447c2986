// Rows of tables whose number no metadata has: those that take a moment are counted unasked, one after the other.

import { useEffect, useRef, useState } from "preact/hooks";
import { askJson } from "./asking";
import type { PlaceFacts, TableFacts } from "./facts";
import { count } from "./texts";

const LARGE = 16 << 20; // bytes of a table whose rows are counted only when somebody asks
const MOMENT = 1_000; // milliseconds in which the rows of one table have to be counted unasked
const MOMENTS = 5_000; // and those of all

type Found = number | "counting" | "unknown" | "failed";

export interface Counts {
  of: (place: number, table: TableFacts) => Found | undefined;
  ask: (place: number, table: TableFacts) => void;
}

export function useCounts(places: PlaceFacts[]): Counts {
  const [found, setFound] = useState<Map<string, Found>>(new Map());
  const ended = useRef(new AbortController());
  const asked = useRef(new Set<string>());

  const one = async (place: number, table: TableFacts, signal: AbortSignal) => {
    const key = keyOf(place, table);
    const put = (value: Found) => setFound((old) => new Map(old).set(key, value));
    asked.current.add(key);
    put("counting");
    try {
      const given = { place: String(place), table: table.store };
      put((await askJson<{ rows: number }>("count", given, signal)).rows);
    } catch {
      if (!ended.current.signal.aborted) put(signal.aborted ? "unknown" : "failed");
    }
  };

  useEffect(() => {
    const waiting = places.flatMap(({ place, tables }) => tables.filter(isUnknown).map((table) => ({ place, table })));
    const begun = performance.now();
    void (async () => {
      for (const { place, table } of waiting) {
        if (ended.current.signal.aborted || performance.now() - begun > MOMENTS) return;
        if (asked.current.has(keyOf(place, table))) continue;
        await one(place, table, AbortSignal.any([ended.current.signal, AbortSignal.timeout(MOMENT)]));
      }
    })();
  }, [places]);
  useEffect(() => () => ended.current.abort(), []);

  return { of: (place, table) => found.get(keyOf(place, table)), ask: (place, table) => void one(place, table, ended.current.signal) };
}

function keyOf(place: number, table: TableFacts): string {
  return `${place}/${table.last}/${table.store}`;
}

function isUnknown(table: TableFacts): boolean {
  return table.keys === null && table.last !== null && (table.bytes ?? 0) <= LARGE;
}

export function Counted(props: { place: number; table: TableFacts; counts: Counts }) {
  const { place, table, counts } = props;
  const found = table.keys ?? counts.of(place, table);
  if (typeof found === "number") return <>{count(found)}</>;
  if (table.last === null) return null;
  if (found === "counting") return <span class="quiet">counting…</span>;
  return (
    <button onClick={() => counts.ask(place, table)} aria-label={`Count the rows of ${table.store}`}>
      {found === "failed" ? "Try again" : "Count"}
    </button>
  );
}
