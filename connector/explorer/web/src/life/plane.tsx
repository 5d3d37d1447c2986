// What was believed when: state time across, the versions that wrote the key upwards. Each piece can be chosen.

import { useEffect, useRef, useState } from "preact/hooks";
import { askRows } from "../asking";
import { conditionsOfKey } from "../conditions";
import { count, moment } from "../texts";
import type { View } from "../view";
import { type Life, type Line, lifeOf, valuesOf } from "./lives";

const ROW = 18;

interface Beliefs {
  life: Life;
  versions: number[];
  commits: number;
}

export function Plane(props: { view: View; life: Life; keys: string[]; go: (change: Partial<View>) => void }) {
  const [isOpen, setOpen] = useState(false);
  const [found, setFound] = useState<Beliefs | null>(null);
  const [error, setError] = useState("");
  const [active, setActive] = useState<[number, number]>([0, 0]);
  const frame = useRef<HTMLDivElement>(null);
  const names = [...new Set(props.life.lines.map((line) => line.name))];
  const [wanted, setWanted] = useState("");
  const name = names.includes(wanted) ? wanted : names[0];
  const where = conditionsOfKey(props.keys, props.life.columns, props.life.lines.find((line) => line.name === name)?.cells ?? []);
  useEffect(() => {
    setFound(null);
    setError("");
    if (!isOpen) return;
    const stop = new AbortController();
    askRows("beliefs", { place: props.view.place, table: props.view.table, where }, stop.signal).then(
      (table) => {
        const facts = table.schema.metadata;
        const versions = (facts.get("beliefs") ?? "").split(",").filter(Boolean).map(Number);
        setActive([versions.length - 1, 0]);
        setFound({ life: lifeOf(table, props.keys), versions, commits: Number(facts.get("commits") ?? 0) });
      },
      (reason: Error) => { if (!stop.signal.aborted) setError(reason.message); },
    );
    return () => stop.abort();
  }, [isOpen, where, props.view.place, props.view.table]);

  const rows = found ? found.versions.map((version) => found.life.lines.filter((line) => line.belief === version)) : [];
  function choose(line: Line): void {
    props.go({ tab: "state", version: String(line.belief), as_of: line.from === null ? "" : new Date(line.from).toISOString(), where });
  }
  function pressed(event: KeyboardEvent): void {
    const [row, at] = active;
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [row, at - 1], ArrowRight: [row, at + 1], ArrowUp: [row + 1, at], ArrowDown: [row - 1, at],
      Home: [row, 0], End: [row, (rows[row]?.length ?? 1) - 1],
    };
    if (event.key === "Enter" && rows[row]?.[at]) choose(rows[row][at]);
    if (!(event.key in moves)) return;
    event.preventDefault();
    const wanted = Math.max(0, Math.min(rows.length - 1, moves[event.key][0]));
    const last = Math.max(0, (rows[wanted]?.length ?? 1) - 1);
    setActive([wanted, Math.max(0, Math.min(last, moves[event.key][1]))]);
  }
  return (
    <details class="believed" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>What was believed when</summary>
      {names.length > 1 && (
        <label><span>Key</span>
          <select value={name} onChange={(event) => setWanted(event.currentTarget.value)}>
            {names.map((each) => <option key={each}>{each}</option>)}
          </select>
        </label>
      )}
      {error && <p class="error" role="alert">{error}</p>}
      {isOpen && !found && !error && <p class="quiet" role="status">Reading…</p>}
      {found && rows.every((row) => row.length === 0) && <p class="quiet">None of the versions that wrote it can be read any more.</p>}
      {found && rows.some((row) => row.length > 0) && (
        <>
          <p class="quiet">
            State time across; each line is the history as one version recorded it, the newest on top:{" "}
            {found.commits > found.versions.length ? `the last ${count(found.versions.length)} of ${count(found.commits)}` : `all ${count(found.commits)}`}{" "}
            that wrote what is known now. Arrow keys choose a piece, Enter shows the state there.
          </p>
          <Drawn rows={rows} versions={found.versions} active={active} frame={frame} pressed={pressed}
            chosen={(row, at) => { setActive([row, at]); frame.current?.focus(); }} choose={choose} />
          <Piece beliefs={found} line={rows[active[0]]?.[active[1]]} keys={props.keys} choose={choose} />
        </>
      )}
    </details>
  );
}

function Drawn(props: {
  rows: Line[][]; versions: number[]; active: [number, number]; frame: { current: HTMLDivElement | null };
  pressed: (event: KeyboardEvent) => void; chosen: (row: number, at: number) => void; choose: (line: Line) => void;
}) {
  const times = props.rows.flat().flatMap((line) => [line.from, line.to]).filter((each) => each !== null) as number[];
  const start = Math.min(...times);
  const end = Math.max(...times);
  const place = (time: number) => 4 + ((time - start) / (end - start || 1)) * 980;
  const height = props.rows.length * ROW;
  const [row, at] = props.active;
  return (
    <div class="lanes-drawn">
      <div class="lane-names short" aria-hidden="true">{props.versions.slice().reverse().map((each) => <span key={each}>{count(each)}</span>)}</div>
      <div ref={props.frame} class="plane-drawn" role="application" tabIndex={0} onKeyDown={props.pressed}
        aria-label="state time across, versions upwards; arrow keys choose, Enter shows the state" aria-describedby="piece">
        <svg viewBox={`0 0 1000 ${height}`} height={height} preserveAspectRatio="none" aria-hidden="true">
          {props.rows.map((lines, number) => (
            <g key={number} transform={`translate(0 ${(props.rows.length - 1 - number) * ROW})`}>
              {lines.map((line, index) => {
                const from = line.from === null ? 0 : place(line.from);
                const to = line.to === null ? 1000 : place(line.to);
                const isActive = number === row && index === at;
                return (
                  <rect key={index} class={`span${index % 2 ? " odd" : ""}${isActive ? " chosen" : ""}`} x={from} y={2}
                    width={Math.max(3, to - from)} height={ROW - 4}
                    onClick={() => props.chosen(number, index)} onDblClick={() => props.choose(line)} />
                );
              })}
            </g>
          ))}
        </svg>
      </div>
    </div>
  );
}

function Piece(props: { beliefs: Beliefs; line: Line | undefined; keys: string[]; choose: (line: Line) => void }) {
  const { line, beliefs } = props;
  return (
    <p id="piece" class="piece" role="status">
      {!line && "Nothing was believed here."}
      {line && (
        <>
          As of version {count(line.belief)}, {line.name}: {moment(line.from) || "before what is kept"} to {moment(line.to) || "now"}:{" "}
          <strong>{valuesOf(beliefs.life, line, props.keys)}</strong>, written by version {count(line.version) || "unknown"}.{" "}
          <button onClick={() => props.choose(line)}>Show the state there</button>
        </>
      )}
    </p>
  );
}
