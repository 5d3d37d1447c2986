// The versions of a key as intervals on state time: a lane for each key, and lanes of the same key in tables beside it.

import { useEffect, useState } from "preact/hooks";
import { askRows } from "../asking";
import type { TableFacts } from "../facts";
import { count, moment } from "../texts";
import type { View } from "../view";
import { type Life, type Line, dueColumn, endText, lifeOf, siblingsOf } from "./lives";

const ROW = 20;
const MOST = 24;
const LEFT = 4;

interface Lane {
  label: string;
  lines: Line[];
  due: { time: number; isPending: boolean }[];
  alone: [number, number][];
}

export function Lanes(props: { life: Life; table: TableFacts; tables: TableFacts[]; keys: string[]; view: View }) {
  const { life, table, keys } = props;
  const siblings = siblingsOf(table, props.tables);
  const [others, setOthers] = useState<Map<string, Life>>(new Map());
  const [problems, setProblems] = useState<string[]>([]); // of tables beside this one
  const where = conditionOf(life, keys[0]);
  useEffect(() => {
    const stop = new AbortController();
    setOthers(new Map());
    setProblems([]);
    if (where === null) return;
    for (const each of siblings) {
      const asked = { place: props.view.place, table: each.store, version: props.view.version, where };
      askRows("life", asked, stop.signal).then(
        (found) => setOthers((old) => new Map(old).set(each.store, lifeOf(found, Object.keys(each.key ?? {})))),
        (reason: Error) => { if (!stop.signal.aborted) setProblems((old) => [...old, `${each.store}: ${reason.message}`]); },
      );
    }
    return () => stop.abort();
  }, [where, life, props.view.place, props.view.version, table.store, siblings.map((each) => each.store).join("\n")]);

  const isPair = siblings.length === 1 && dueColumn(table) === null && dueColumn(siblings[0]) === null;
  const mine = [...new Set(life.lines.map((line) => line.name))].slice(-MOST);
  const lanes: Lane[] = mine.map((name) => laneOf(siblings.length ? `${table.store}: ${name}` : name,
    life.lines.filter((line) => line.name === name), life, dueColumn(table)));
  for (const each of siblings) {
    const found = others.get(each.store);
    if (found) lanes.push(laneOf(each.store, found.lines, found, dueColumn(each)));
  }
  if (isPair && others.size === 1) {
    const theirs = others.get(siblings[0].store)?.lines ?? [];
    lanes.forEach((lane) => { lane.alone = gapsOf(lane.lines, lane.label === siblings[0].store ? life.lines : theirs); });
  }
  const times = lanes.flatMap((lane) => [...lane.lines.flatMap((line) => [line.from, line.to])])
    .filter((each) => each !== null) as number[];
  if (times.length === 0) return null;
  const start = Math.min(...times);
  const end = Math.max(...times);
  const span = end - start || 1;
  const place = (time: number | null, open: number) => (time === null ? open : LEFT + ((time - start) / span) * (992 - 2 * LEFT));
  const height = lanes.length * ROW;
  const hasAlone = lanes.some((lane) => lane.alone.length);
  const pending = lanes.reduce((sum, lane) => sum + lane.due.filter((each) => each.isPending).length, 0);
  return (
    <figure class="lanes">
      <div class="lanes-drawn">
        <div class="lane-names" aria-hidden="true">{lanes.map((lane) => <span key={lane.label} title={lane.label}>{lane.label}</span>)}</div>
        <svg viewBox={`0 0 1000 ${height}`} height={height} preserveAspectRatio="none" role="img"
          aria-label={`${life.lines.length} versions from ${endText(life, start)} to ${endText(life, end)}`}>
          {lanes.map((lane, row) => (
            <g key={lane.label} transform={`translate(0 ${row * ROW})`}>
              {lane.lines.map((line, number) => {
                const from = place(line.from, 0);
                const width = Math.max(2, place(line.to, 1000) - from);
                return (
                  <g key={number}>
                    <rect class={number % 2 ? "span odd" : "span"} x={from} y={4} width={width} height={ROW - 8} />
                    <line class="begin" x1={from} x2={from} y1={2} y2={ROW - 2} />
                  </g>
                );
              })}
              {lane.alone.map(([from, to], number) => (
                <line key={number} class="alone" x1={place(from, 0)} x2={Number.isFinite(to) ? place(to, 1000) : 1000} y1={ROW / 2} y2={ROW / 2} />
              ))}
              {lane.due.map((each, number) => (
                <path key={number} class={each.isPending ? "due" : "due past"} d={`M${Math.min(994, place(each.time, 1000))} 3 l4 ${ROW - 7} h-8 z`} />
              ))}
            </g>
          ))}
        </svg>
      </div>
      <div class="ends"><span>{endText(life, start)}</span><span>{endText(life, end)}</span></div>
      <figcaption class="quiet">
        {mine.length === MOST && `The last ${MOST} keys. `}
        {hasAlone && "A dashed line: alone, no row of the other side was in the state at that time. "}
        {lanes.some((lane) => lane.due.length) && `▲ a timer's due time, at the right edge if it is later; ${count(pending)} pending. `}
        {problems.length > 0 && `Not drawn beside it: ${problems.join("; ")}`}
      </figcaption>
      {lanes.some((lane) => lane.due.some((each) => each.isPending)) && (
        <ul class="pending">
          {lanes.flatMap((lane) => lane.due.filter((each) => each.isPending).map((each, number) => (
            <li key={`${lane.label} ${number}`}>▲ {lane.label}: pending, due {moment(each.time)}</li>
          ))).slice(0, 20)}
        </ul>
      )}
    </figure>
  );
}

function laneOf(label: string, lines: Line[], life: Life, due: string | null): Lane {
  const at = due === null || !life.isTimed ? -1 : life.columns.findIndex((each) => each.name === due);
  const marks = at < 0 ? [] : lines.map((line) => ({ time: Number(line.cells[at]), isPending: line.to === null }));
  return { label, lines, due: marks.filter((each) => Number.isFinite(each.time)), alone: [] };
}

// The condition on the first column of the key, if all versions have one value of it; null where they have several.
function conditionOf(life: Life, key: string | undefined): string | null {
  const at = life.columns.findIndex((each) => each.name === key);
  if (at < 0 || life.lines.length === 0) return null;
  const cell = life.lines[0].cells[at];
  if (cell === null || cell.endsWith("…") || life.lines.some((line) => line.cells[at] !== cell)) return null;
  return JSON.stringify([[key, "is", cell]]);
}

// The times at which one side has a row and the other has none.
function gapsOf(mine: Line[], theirs: Line[]): [number, number][] {
  const spans = (lines: Line[]) => merged(lines.map((line) => [line.from ?? -Infinity, line.to ?? Infinity]));
  const found: [number, number][] = [];
  for (const [from, to] of spans(mine)) {
    let start = from;
    for (const [begin, end] of spans(theirs)) {
      if (end <= start || begin >= to) continue;
      if (begin > start) found.push([start, begin]);
      start = Math.max(start, end);
    }
    if (start < to) found.push([start, to]);
  }
  return found.filter(([from]) => Number.isFinite(from));
}

function merged(spans: number[][]): [number, number][] {
  const found: [number, number][] = [];
  for (const [from, to] of [...spans].sort((one, two) => one[0] - two[0])) {
    const last = found[found.length - 1];
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else found.push([from, to]);
  }
  return found;
}
