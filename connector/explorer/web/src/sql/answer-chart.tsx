// An answer as a chart: bars, lines or dots of one column of numbers, with what the marks mean in words and shapes.

import * as Plot from "@observablehq/plot";
import type { Table } from "apache-arrow";
import { useEffect, useMemo, useState } from "preact/hooks";
import { askRows } from "../asking";
import { Chart } from "../chart";
import { count } from "../texts";

export interface AnswerColumn {
  name: string;
  type: string;
  kind: "number" | "time" | "text";
}

export interface AnswerFacts {
  rows: number;
  cut: boolean;
  seconds: number;
  columns: AnswerColumn[];
}

interface Choice {
  mark: "bar" | "line" | "dots";
  x: string;
  y: string;
  series: string;
}

interface Point {
  x: number | string | Date;
  y: number;
  series: number;
}

interface Drawn {
  points: Point[];
  names: (string | null)[]; // of the series that are drawn
  notes: string[];
}

const MARKS: [Choice["mark"], string][] = [["bar", "Bars"], ["line", "Lines"], ["dots", "Dots"]];
const MAX_SERIES = 6;
const MAX_BARS = 150;
const DASHES = ["none", "7 4", "2 3", "10 3 2 3", "12 6", "4 2 1 2"];
const SYMBOLS = ["circle", "triangle", "square", "diamond", "star", "cross"] as const;

export function defaultChoice(columns: AnswerColumn[]): Choice {
  const of = (kind: string) => columns.find((each) => each.kind === kind)?.name;
  const numbers = columns.filter((each) => each.kind === "number").map((each) => each.name);
  const x = of("time") ?? of("text") ?? numbers[0] ?? "";
  const y = numbers.filter((each) => each !== x).pop() ?? numbers[0] ?? ""; // what is computed mostly comes last
  const kind = columns.find((each) => each.name === x)?.kind;
  return { mark: kind === "time" ? "line" : kind === "text" ? "bar" : "dots", x, y, series: "" };
}

function choiceOf(text: string, columns: AnswerColumn[]): Choice {
  const usual = defaultChoice(columns);
  let given: Partial<Choice> = {};
  try {
    given = (JSON.parse(text) ?? {}) as Partial<Choice>;
  } catch {
    // a changed address
  }
  const has = (name: unknown, kind?: string) => columns.some((each) => each.name === name && (!kind || each.kind === kind));
  return {
    mark: MARKS.some(([mark]) => mark === given.mark) ? (given.mark as Choice["mark"]) : usual.mark,
    x: has(given.x) ? (given.x as string) : usual.x,
    y: has(given.y, "number") ? (given.y as string) : usual.y,
    series: has(given.series) ? (given.series as string) : "",
  };
}

function drawnOf(found: Table, kind: string, mark: Choice["mark"]): Drawn {
  const fact = (name: string) => Number(found.schema.metadata.get(name));
  const [xs, ys, ss] = ["x", "y", "series"].map((name) => found.getChild(name));
  const numbers = new Map<string | null, number>();
  const bars = new Map<number | string, number>();
  const points: Point[] = [];
  for (let row = 0; row < found.numRows; row += 1) {
    const series = (ss?.get(row) ?? null) as string | null;
    const x = xs?.get(row) as number | string;
    if (!numbers.has(series)) numbers.set(series, numbers.size);
    bars.set(x, bars.get(x) ?? bars.size);
    const number = numbers.get(series) as number;
    if (number >= MAX_SERIES || (mark === "bar" && (bars.get(x) as number) >= MAX_BARS)) continue;
    points.push({ x: kind === "time" ? new Date(x as number) : x, y: ys?.get(row) as number, series: number });
  }
  if (mark === "line" && kind !== "text") points.sort((one, other) => Number(one.x) - Number(other.x));
  const notes = [];
  if (fact("seen") < fact("rows")) notes.push(`the first ${count(fact("seen"))} of ${count(fact("rows"))} rows are drawn`);
  if (fact("left_out")) notes.push(`${count(fact("left_out"))} rows without a finite x or y are left out`);
  if (numbers.size > MAX_SERIES) notes.push(`the first ${MAX_SERIES} of ${count(numbers.size)} series are drawn`);
  if (mark === "bar" && bars.size > MAX_BARS) notes.push(`the first ${MAX_BARS} of ${count(bars.size)} bars are drawn`);
  if (mark === "bar" && points.length > new Set(points.map((each) => Number(each.x) || each.x)).size) notes.push("rows with the same x are stacked");
  return { points, names: [...numbers.keys()].slice(0, MAX_SERIES), notes };
}

const colour = (series: number) => `var(--series-${series})`;

function shortTime(value: Date): string {
  const text = Number.isNaN(value.getTime()) ? "" : value.toISOString();
  return text.slice(11, 19) === "00:00:00" ? text.slice(0, 10) : text.slice(5, 16).replace("T", " ");
}

function shortNumber(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-4) return value.toExponential(2);
  return new Intl.NumberFormat("en-US", { notation: size < 1e5 ? "standard" : size < 1e15 ? "compact" : "scientific", maximumSignificantDigits: 6 }).format(value);
}

function optionsOf(drawn: Drawn, choice: Choice, kind: string, width: number): Plot.PlotOptions {
  const { points } = drawn;
  const isBand = choice.mark === "bar" || kind === "text";
  const values = isBand ? [...new Map(points.map((each) => [String(each.x), each.x])).values()] : [];
  const room = Math.max(2, Math.floor((width - 80) / 90));
  const every = Math.ceil(values.length / room);
  const marks: Plot.Markish[] = [];
  if (choice.mark === "bar") {
    marks.push(Plot.ruleY([0]), Plot.barY(points, {
      x: "x", y: "y", z: "series", fill: (each: Point) => `url(#series-${each.series})`, stroke: (each: Point) => colour(each.series), tip: true,
    }));
  }
  drawn.names.forEach((name, series) => {
    const mine = points.filter((each) => each.series === series);
    if (choice.mark === "line") {
      marks.push(Plot.line(mine, { x: "x", y: "y", stroke: colour(series), strokeWidth: 2, strokeDasharray: DASHES[series], tip: true }));
      if (mine.length === 1) marks.push(Plot.dot(mine, { x: "x", y: "y", fill: colour(series) }));
    }
    if (choice.mark === "dots") {
      marks.push(Plot.dot(mine, { x: "x", y: "y", stroke: colour(series), strokeWidth: 1.5, symbol: SYMBOLS[series], r: 4, tip: true }));
    }
  });
  const shorten = (value: unknown) => {
    if (value instanceof Date) return shortTime(value);
    const text = String(value);
    return text.length > 14 ? `${text.slice(0, 13)}…` : text;
  };
  return {
    height: 360, marginLeft: 64, marginBottom: 44, color: { type: "identity" },
    x: isBand
      ? { type: choice.mark === "bar" ? "band" : "point", domain: values as Iterable<string>, label: choice.x, ticks: values.filter((_, at) => at % every === 0) as never, tickFormat: shorten }
      : { type: kind === "time" ? "utc" : "linear", label: choice.x, ticks: room },
    y: { label: choice.y, grid: true, tickFormat: shortNumber },
    marks,
  };
}

interface Props {
  asked: Record<string, string>;
  facts: AnswerFacts;
  chosen: string;
  go: (chart: string) => void;
}

export function AnswerChart(props: Props) {
  const { columns } = props.facts;
  const choice = choiceOf(props.chosen, columns);
  const kind = columns.find((each) => each.name === choice.x)?.kind ?? "text";
  const [found, setFound] = useState<Table | null>(null);
  const [error, setError] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    setFound(null);
    setError("");
    askRows("sql/points", { ...props.asked, x: choice.x, y: choice.y, series: choice.series }, stop.signal).then(
      setFound, (reason: Error) => { if (!stop.signal.aborted) setError(reason.message); },
    );
    return () => stop.abort();
  }, [choice.x, choice.y, choice.series]);
  const drawn = useMemo(() => (found ? drawnOf(found, kind, choice.mark) : null), [found, kind, choice.mark]);
  const change = (part: Partial<Choice>) => props.go(JSON.stringify({ ...choice, ...part }));
  const pick = (label: string, name: "x" | "y" | "series", fits: AnswerColumn[], none = false) => (
    <label><span>{label}</span>
      <select value={choice[name]} onChange={(event) => change({ [name]: event.currentTarget.value })}>
        {none && <option value="">none</option>}
        {fits.map((each) => <option key={each.name}>{each.name}</option>)}
      </select>
    </label>
  );
  return (
    <div class="drawn">
      <div class="choices">
        <label><span>Marks</span>
          <select value={choice.mark} onChange={(event) => change({ mark: event.currentTarget.value as Choice["mark"] })}>
            {MARKS.map(([mark, text]) => <option key={mark} value={mark}>{text}</option>)}
          </select>
        </label>
        {pick("x", "x", columns)}
        {pick("y", "y", columns.filter((each) => each.kind === "number"))}
        {pick("Series", "series", columns, true)}
      </div>
      {error && <p class="error" role="alert">{error}</p>}
      {!found && !error && <p class="quiet" role="status">Reading…</p>}
      {drawn && drawn.points.length === 0 && <p role="status">There is no row with a finite x and y to draw.</p>}
      {drawn && drawn.points.length > 0 && (
        <>
          <Patterns />
          <Chart label={labelOf(drawn, choice)} inputs={[drawn, choice.mark]} options={(width) => optionsOf(drawn, choice, kind, width)} />
          {choice.series && <Legend names={drawn.names} mark={choice.mark} column={choice.series} />}
        </>
      )}
      {drawn && <p class="quiet" role="status">{[`${count(drawn.points.length)} ${drawn.points.length === 1 ? "point" : "points"}`, ...drawn.notes].join("; ")}. The same values are under Rows.</p>}
    </div>
  );
}

function labelOf(drawn: Drawn, choice: Choice): string {
  const ys = drawn.points.map((each) => each.y);
  const [least, most] = [ys.reduce((one, other) => Math.min(one, other)), ys.reduce((one, other) => Math.max(one, other))];
  const kind = { bar: "bar chart", line: "line chart", dots: "dots" }[choice.mark];
  return `${kind} of ${choice.y} by ${choice.x}: ${count(drawn.points.length)} points, ${choice.y} from ${least} to ${most}`;
}

// The fillings of bars, which differ by their lines and not by colour alone.
function Patterns() {
  const lines = ["", "M0 8L8 0", "M0 0L8 8", "M0 4H8", "M4 0V8", "M0 4H8M4 0V8"];
  return (
    <svg class="unseen" aria-hidden="true">
      <defs>
        {lines.map((path, series) => (
          <pattern key={series} id={`series-${series}`} width={8} height={8} patternUnits="userSpaceOnUse">
            <rect width={8} height={8} fill={colour(series)} opacity={path ? 0.25 : 0.75} />
            {path && <path d={path} stroke={colour(series)} stroke-width={2} />}
          </pattern>
        ))}
      </defs>
    </svg>
  );
}

function Legend(props: { names: (string | null)[]; mark: Choice["mark"]; column: string }) {
  return (
    <ul class="legend" aria-label={`series by ${props.column}`}>
      {props.names.map((name, series) => (
        <li key={series}>
          <svg width={34} height={14} aria-hidden="true">
            {props.mark === "line" && <line x1={1} x2={33} y1={7} y2={7} stroke={colour(series)} stroke-width={2} stroke-dasharray={DASHES[series]} />}
            {props.mark === "bar" && <rect x={6} y={1} width={22} height={12} fill={`url(#series-${series})`} stroke={colour(series)} />}
            {props.mark === "dots" && <Symbol series={series} />}
          </svg>
          {name === null ? <span class="null">null</span> : name === "" ? <span class="null">empty text</span> : name.slice(0, 60)}
        </li>
      ))}
    </ul>
  );
}

function Symbol(props: { series: number }) {
  const shapes = [
    "M17 3a4 4 0 1 0 .01 0Z", "M17 2L22 11H12Z", "M13 3H21V11H13Z", "M17 1L22 7L17 13L12 7Z",
    "M17 1L18.5 5.5H23L19.5 8L21 13L17 10L13 13L14.5 8L11 5.5H15.5Z", "M15 2H19V5H22V9H19V12H15V9H12V5H15Z",
  ];
  return <path d={shapes[props.series]} fill="none" stroke={colour(props.series)} stroke-width={1.5} />;
}
