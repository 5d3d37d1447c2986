// What is known of the commits that changed the key: who, when, its watermark and offsets.

import type { Table } from "apache-arrow";
import { useEffect, useState } from "preact/hooks";
import { askRows } from "../asking";
import { Cell, cellsOf, columnsOf } from "../grid";
import type { View } from "../view";

const NAMES: Record<string, string> = { stream_time: "watermark" };

export function Commits(props: { versions: number[]; view: View }) {
  const [found, setFound] = useState<Table | null>(null);
  const [error, setError] = useState("");
  const wanted = props.versions.join(",");
  useEffect(() => {
    const stop = new AbortController();
    setError("");
    const asked = { place: props.view.place, table: props.view.table, only: wanted };
    if (wanted) {
      askRows("versions", asked, stop.signal).then(setFound, (reason: Error) => { if (!stop.signal.aborted) setError(reason.message); });
    }
    return () => stop.abort();
  }, [wanted, props.view.place, props.view.table]);
  if (error) return <p class="error" role="alert">{error}</p>;
  if (found === null || found.numRows === 0) return null;
  const columns = columnsOf(found);
  const cells = cellsOf(found);
  const kept = columns.map((column, at) => ({ column, at })).filter(({ at }) => cells.some((row) => row[at] !== null));
  return (
    <details open={props.versions.length <= 5}>
      <summary>Why: the commits that changed it, with what is known of them</summary>
      <div class="scrolled" tabIndex={0} role="region" aria-label="commits">
        <table class="facts">
          <thead><tr>{kept.map(({ column }) => (
            <th key={column.name} scope="col" class={column.isNumber ? "number" : ""} title={column.name}>{NAMES[column.name] ?? column.name}</th>
          ))}</tr></thead>
          <tbody>
            {cells.slice().reverse().map((row, number) => (
              <tr key={number}>{kept.map(({ column, at }) => <Cell key={column.name} text={row[at]} kind={column.isNumber ? "number" : ""} />)}</tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
