// The life of a key: its versions over state time and over commits, and each change with the commit that made it.

import type { Table } from "apache-arrow";
import { useEffect, useState } from "preact/hooks";
import { askRows } from "./asking";
import { type Column, Cell, cellsOf, columnsOf } from "./grid";
import { count, moment } from "./texts";
import type { View } from "./view";

const HELPERS = ["__from", "__to", "__version"];

interface Life {
  columns: Column[];
  rows: { cells: (string | null)[]; from: number | null; to: number | null; version: number | null }[];
  total: number;
}

function lifeOf(found: Table): Life {
  const columns = columnsOf(found).filter((each) => !HELPERS.includes(each.name));
  const cells = cellsOf(found);
  const helpers = HELPERS.map((name) => found.getChild(name));
  const rows = cells.map((each, row) => {
    const [from, to, version] = helpers.map((column) => column?.get(row) as number | null);
    return { cells: each.slice(0, columns.length), from, to, version };
  });
  return { columns, rows, total: Number(found.schema.metadata.get("total")) };
}

export function KeyLife(props: { view: View; keys: string[]; go: (change: Partial<View>) => void }) {
  const { view, go } = props;
  const [text, setText] = useState(view.key);
  const [life, setLife] = useState<Life | null>(null);
  const [error, setError] = useState("");
  const [isAsked, setAsked] = useState(false);
  useEffect(() => {
    setText(view.key);
    setLife(null);
    setError("");
    if (!view.key && !view.at) return;
    const stop = new AbortController();
    setAsked(true);
    const asked = { place: view.place, table: view.table, key: view.key, where: view.key ? "" : view.at };
    askRows("life", asked, stop.signal).then(
      (found) => { setAsked(false); setLife(lifeOf(found)); },
      (reason: Error) => { if (!stop.signal.aborted) { setAsked(false); setError(reason.message); } },
    );
    return () => stop.abort();
  }, [view.place, view.table, view.key, view.at]);
  const example = props.keys.length > 1
    ? `a JSON object with ${props.keys.join(", ")}, or the first of them` : `a value of ${props.keys[0] ?? "the key"}`;
  return (
    <section class="life" aria-label="life of a key">
      <form class="finder" onSubmit={(event) => { event.preventDefault(); go({ key: text, at: "" }); }}>
        <label><span>Key</span>
          <input value={text} placeholder={example} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <button>Show its life</button>
      </form>
      {error && <p class="error" role="alert">{error}</p>}
      {isAsked && <p class="quiet" role="status">Reading…</p>}
      {life && life.rows.length === 0 && <p role="status">This key never had a value in what is kept.</p>}
      {life && life.rows.length > 0 && <Versions life={life} view={view} keys={props.keys} go={go} />}
      {!life && !isAsked && !error && <p class="quiet">Type a key, or open one from the rows of the state.</p>}
    </section>
  );
}

function Versions(props: { life: Life; view: View; keys: string[]; go: (change: Partial<View>) => void }) {
  const { life } = props;
  const shown = life.columns
    .map((column, at) => ({ column, at }))
    .filter(({ column }) => !["valid_from", "valid_to", "_commit_version"].includes(column.name));
  const keyAt = shown.filter(({ column }) => props.keys.includes(column.name)).map(({ at }) => at);
  const previous = new Map<string, (string | null)[]>();
  const lines = life.rows.map((row) => {
    const name = keyAt.map((at) => row.cells[at]).join(", ");
    const before = previous.get(name);
    previous.set(name, row.cells);
    return { ...row, name, before };
  });
  const commits = [...new Set(life.rows.map((row) => row.version).filter((each) => each !== null))] as number[];
  return (
    <>
      <p class="quiet" role="status">
        {count(life.total)} {life.total === 1 ? "version" : "versions"} in {count(commits.length)}{" "}
        {commits.length === 1 ? "commit" : "commits"}
        {life.total > life.rows.length && `; the newest ${count(life.rows.length)} are shown`}
      </p>
      <Plane lines={lines} />
      <div class="scrolled" tabIndex={0} role="region" aria-label="versions of the key">
        <table class="facts">
          <thead>
            <tr>
              <th scope="col">Valid from</th><th scope="col">Until</th>
              {shown.map(({ column }) => <th key={column.name} scope="col" class={column.isNumber ? "number" : ""}>{column.name}</th>)}
              <th scope="col" class="number">Version</th>
            </tr>
          </thead>
          <tbody>
            {lines.slice().reverse().map((line, number) => (
              <tr key={number}>
                <td>{moment(line.from) || "before what is kept"}</td>
                <td>{moment(line.to) || "still valid"}</td>
                {shown.map(({ column, at }) => {
                  const isChanged = line.before && line.before[at] !== line.cells[at];
                  const kind = `${column.isNumber ? "number" : ""} ${isChanged ? "changed" : ""}`.trim();
                  return <Cell key={column.name} text={line.cells[at]} kind={kind} />;
                })}
                <td class="number">
                  {line.version === null ? "" : (
                    <button class="link" title="show the state as of this commit"
                      onClick={() => props.go({ tab: "state", version: String(line.version), as_of: "" })}>
                      {count(line.version)}
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Commits versions={commits.slice(-50)} view={props.view} />
    </>
  );
}

interface Line {
  name: string;
  from: number | null;
  to: number | null;
  version: number | null;
}

const ROW = 18;
const LANES = 12;

// State time across, one lane for each row of the key, newest lanes first; a value lasts from its mark to the next.
function Plane(props: { lines: Line[] }) {
  const known = props.lines.flatMap((line) => [line.from, line.to]).filter((each) => each !== null) as number[];
  if (known.length === 0) return null;
  const start = Math.min(...known);
  const end = Math.max(...known);
  const span = end - start || 1;
  const place = (time: number) => 10 + ((time - start) / span) * 940;
  const names = [...new Set(props.lines.map((line) => line.name))].slice(-LANES);
  return (
    <div class="plane">
      <svg viewBox={`0 0 1000 ${names.length * ROW}`} height={names.length * ROW} preserveAspectRatio="none" role="img"
        aria-label={`${props.lines.length} versions from ${moment(start)} to ${moment(end)}`}>
        {props.lines.filter((line) => names.includes(line.name)).map((line, number) => {
          const y = names.indexOf(line.name) * ROW + 4;
          const from = line.from === null ? 0 : place(line.from);
          const to = line.to === null ? 1000 : place(line.to);
          return (
            <g key={number}>
              <rect class={number % 2 ? "span odd" : "span"} x={from} y={y} width={Math.max(2, to - from)} height={ROW - 6} />
              <line class="begin" x1={from} x2={from} y1={y - 2} y2={y + ROW - 4} />
            </g>
          );
        })}
      </svg>
      <div class="ends"><span>{moment(start)}</span><span>{moment(end)} → now</span></div>
    </div>
  );
}

// What is known of the commits that changed the key: who, when, its watermark and offsets.
function Commits(props: { versions: number[]; view: View }) {
  const [found, setFound] = useState<Table | null>(null);
  const wanted = props.versions.join(",");
  useEffect(() => {
    const stop = new AbortController();
    const asked = { place: props.view.place, table: props.view.table, only: wanted };
    if (wanted) askRows("versions", asked, stop.signal).then(setFound, () => setFound(null));
    return () => stop.abort();
  }, [wanted, props.view.table]);
  if (found === null || found.numRows === 0) return null;
  const columns = columnsOf(found);
  const cells = cellsOf(found);
  const kept = columns.map((column, at) => ({ column, at })).filter(({ at }) => cells.some((row) => row[at] !== null));
  return (
    <details>
      <summary>The commits that changed it</summary>
      <div class="scrolled" tabIndex={0} role="region" aria-label="commits">
        <table class="facts">
          <thead><tr>{kept.map(({ column }) => <th key={column.name} scope="col" class={column.isNumber ? "number" : ""}>{column.name}</th>)}</tr></thead>
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
