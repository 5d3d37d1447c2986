// The numbers of a chart as a table; an unknown one is a blank that says so.

import { useState } from "preact/hooks";
import { count } from "../texts";

const SHOWN = 200;

export type Cell = string | number | null;

export function Numbers(props: { name: string; columns: string[]; rows: Cell[][] }) {
  const [isOpen, setOpen] = useState(false);
  const cut = props.rows.length - SHOWN;
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>The numbers of {props.name}</summary>
      {isOpen && (
        <div class="scrolled" tabIndex={0} role="region" aria-label={`numbers of ${props.name}`}>
          <table class="facts">
            <thead><tr>{props.columns.map((each) => <th key={each} scope="col" class="number">{each}</th>)}</tr></thead>
            <tbody>
              {props.rows.slice(0, SHOWN).map((row, number) => (
                <tr key={number}>{row.map((cell, at) => <td key={at} class="number">{cellText(cell)}</td>)}</tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {isOpen && cut > 0 && <p class="quiet">The first {count(SHOWN)} of {count(props.rows.length)} rows are shown.</p>}
    </details>
  );
}

function cellText(cell: Cell) {
  if (cell === null) return <span class="null">unknown</span>;
  return typeof cell === "number" ? count(cell) : cell;
}
