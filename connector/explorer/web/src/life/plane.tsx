// What was believed when: state time across, the versions that wrote or deleted the key upwards. Each piece can be chosen.

import { useEffect, useRef, useState } from "preact/hooks";
import { askRows } from "../asking";
import { conditionsOfKey } from "../conditions";
import { Waiting } from "../exports/waiting";
import { count } from "../texts";
import type { View } from "../view";
import { type Life, type Line, endText, lifeOf, valuesOf } from "./lives";

const ROW = 18;

interface Beliefs {
  life: Life;
  versions: number[];
  commits: number;
  isAll: boolean; // else those are missing that only deleted something
}

export function Plane(props: { view: View; life: Life; keys: string[]; go: (change: Partial<View>) => void }) {
  const [isOpen, setOpen] = useState(false);
  const [found, setFound] = useState<Beliefs | null>(null);
  const [error, setError] = useState("");
  const [active, setActive] = useState<[number, number]>([0, 0]);
  const [reading, setReading] = useState<{ since: number; ask: string; cancel: () => void } | null>(null);
  const frame = useRef<HTMLDivElement>(null);
  const names = [...new Set(props.life.lines.map((line) => line.name))];
  const [wanted, setWanted] = useState("");
  const name = names.includes(wanted) ? wanted : names[0];
  const line = props.life.lines.find((each) => each.name === name);
  // Nothing may be known now of a key that was written: then it is asked for as it was typed or opened.
  const asked: Record<string, string> = line ? { where: conditionsOfKey(props.keys, props.life.columns, line.cells) }
    : { key: props.view.key, where: props.view.key ? "" : props.view.at };
  const question = JSON.stringify(asked);
  useEffect(() => {
    setFound(null);
    setError("");
    if (!isOpen) return;
    const stop = new AbortController();
    const ask = `${Date.now()}-${Math.random()}`;
    setReading({ since: Date.now(), ask, cancel: () => { stop.abort(); setReading(null); } });
    askRows("beliefs", { place: props.view.place, table: props.view.table, ...asked, ask }, stop.signal).then(
      (table) => {
        const facts = table.schema.metadata;
        const versions = (facts.get("beliefs") ?? "").split(",").filter(Boolean).map(Number);
        setActive([versions.length - 1, 0]);
        setFound({ life: lifeOf(table, props.keys), versions, commits: Number(facts.get("commits") ?? 0), isAll: facts.get("all") === "1" });
      },
      (reason: Error) => { if (!stop.signal.aborted) setError(reason.message); },
    );
    return () => stop.abort();
  }, [isOpen, question, props.view.place, props.view.table]);

  const rows = found ? found.versions.map((version) => found.life.lines.filter((line) => line.belief === version)) : [];
  function choose(line: Line): void {
    const where = conditionsOfKey(props.keys, (found as Beliefs).life.columns, line.cells);
    props.go({ tab: "state", version: String(line.belief), as_of: line.from === null || !(found as Beliefs).life.isTimed ? "" : new Date(line.from).toISOString(), where });
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
      {isOpen && !found && !error && <p class="quiet" role="status">{reading ? "Reading…" : "Cancelled; close it and open it to read it again."}</p>}
      {isOpen && !found && !error && reading && <Waiting {...reading} doing="Reading" />}
      {found && rows.length === 0 && (
        <p class="quiet">{found.isAll ? "No version that can still be read wrote it or deleted it." : "None of the versions that wrote what is known now can still be read."}</p>
      )}
      {found && rows.length > 0 && (
        <>
          <p class="quiet">
            {found.life.isTimed ? "State time" : "Versions"} across; each line is the history as one version recorded it, the newest on top:{" "}
            {found.commits > found.versions.length ? `the last ${count(found.versions.length)} of ${count(found.commits)} versions` : found.commits === 1 ? "the only version" : `all ${count(found.commits)} versions`}{" "}
            {found.isAll ? "that wrote it or deleted it and can still be read. " : "that wrote what is known now; those that only deleted it, or whose rows were all replaced, are not known. "}
            Arrow keys choose a piece, Enter shows the state there.
          </p>
          <Drawn rows={rows} versions={found.versions} active={active} frame={frame} pressed={pressed}
            chosen={(row, at) => { setActive([row, at]); frame.current?.focus(); }} choose={choose} />
          <Piece beliefs={found} version={found.versions[active[0]]} line={rows[active[0]]?.[active[1]]} keys={props.keys} choose={choose} />
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
  const [start, end] = times.length ? [Math.min(...times), Math.max(...times)] : [0, 0];
  const place = (time: number) => 4 + ((time - start) / (end - start || 1)) * 980;
  const height = props.rows.length * ROW;
  const [row, at] = props.active;
  return (
    <div class="lanes-drawn">
      <div class="lane-names short" aria-hidden="true">{props.versions.slice().reverse().map((each) => <span key={each}>{count(each)}</span>)}</div>
      <div ref={props.frame} class="plane-drawn" role="application" tabIndex={0} onKeyDown={props.pressed}
        aria-label="state time or versions across, the versions that recorded them upwards; arrow keys choose, Enter shows the state" aria-describedby="piece">
        <svg viewBox={`0 0 1000 ${height}`} height={height} preserveAspectRatio="none" aria-hidden="true">
          {props.rows.map((lines, number) => (
            <g key={number} transform={`translate(0 ${(props.rows.length - 1 - number) * ROW})`}>
              {lines.length === 0 && (
                <line class={number === row ? "none chosen" : "none"} x1={4} x2={996} y1={ROW / 2} y2={ROW / 2} />
              )}
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

function Piece(props: { beliefs: Beliefs; version: number | undefined; line: Line | undefined; keys: string[]; choose: (line: Line) => void }) {
  const { line, beliefs } = props;
  return (
    <p id="piece" class="piece" role="status">
      {!line && `As of version ${count(props.version)}, it had no value at any time that is kept.`}
      {line && (
        <>
          As of version {count(line.belief)}, {line.name}: {endText(beliefs.life, line.from) || "before what is kept"} to {endText(beliefs.life, line.to) || "now"}:{" "}
          <strong>{valuesOf(beliefs.life, line, props.keys)}</strong>, written by version {count(line.version) || "unknown"}.{" "}
          <button onClick={() => props.choose(line)}>Show the state there</button>
        </>
      )}
    </p>
  );
}
