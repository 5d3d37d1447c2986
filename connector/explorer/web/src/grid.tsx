// A grid of rows that are fetched as they come into sight, in lots. Only rows in sight are elements of the page.

import type { Table } from "apache-arrow";
import { useEffect, useRef, useState } from "preact/hooks";
import { Refused, askJson, askRows } from "./asking";
import { EditRow } from "./exports/edit-row";
import { Waiting } from "./exports/waiting";
import { count } from "./texts";

const ROW = 28;
const LOT = 100;
const MORE = 10; // rows beyond both ends of what is in sight
const HIGHEST = 8_000_000; // pixels of an element; of more rows, a pixel stands for several

export interface Column {
  name: string;
  type: string;
  isNumber: boolean;
}

export type Cells = (string | null)[];

interface Lots {
  asked: Record<string, string>;
  sort: string;
  columns: Column[];
  total: number | null;
  rows: Map<number, Cells>;
}

export function columnsOf(rows: Table): Column[] {
  return rows.schema.fields.map((field) => ({
    name: field.name, type: field.metadata.get("type") ?? "", isNumber: field.metadata.get("numeric") === "1",
  }));
}

export function cellsOf(rows: Table): Cells[] {
  const columns = rows.schema.fields.map((_, at) => rows.getChildAt(at));
  return Array.from({ length: rows.numRows }, (_, row) => columns.map((column) => column?.get(row) as string | null));
}

export interface Shape {
  columns: Column[];
  rows: Cells[]; // may have more cells than there are columns, for `kindOf`
}

interface Props {
  route?: string; // answers `asked` with all numbers of rows known; "rows" if left out
  label?: string;
  isCounted?: boolean; // the page says elsewhere how many rows there are
  shape?: (rows: Table) => Shape; // the columns and cells as they are shown; by default those of the answer
  kindOf?: (cells: Cells, at: number) => "changed" | ""; // the mark of a cell; by default by the view before
  asked: Record<string, string>; // the question without its order and its page
  sort: string;
  keys: string[];
  onSort?: (sort: string, quietly?: boolean) => void;
  onOpen?: (row: Record<string, string | null>, columns: Column[]) => void;
  isEditable?: boolean; // rows are those of an engine, and commands that edit them can be copied
}

export function Grid(props: Props) {
  const question = JSON.stringify([props.asked, props.sort]);
  const [lots, setLots] = useState<Lots | null>(null);
  const [before, setBefore] = useState<Map<string, Cells>>(new Map());
  const [error, setError] = useState("");
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(400);
  const [active, setActive] = useState(0);
  const [since, setSince] = useState<number | null>(null); // when the oldest question without an answer was asked
  const [isCancelled, setCancelled] = useState(false);
  const [attempt, setAttempt] = useState(0);
  const [counted, setCounted] = useState<number | null>(null);
  const [unsorted, setUnsorted] = useState(""); // why the rows are not in the order that was asked for
  const [uncounted, setUncounted] = useState(""); // why the rows were not counted
  const frame = useRef<HTMLDivElement>(null);
  const pending = useRef<Set<number>>(new Set());
  const ask = useRef(""); // the name of the newest question, by which its progress is asked for
  const current = useRef(question);

  const known = lots === null ? null : (counted ?? lots.total);
  const reached = lots === null ? 0 : Math.max(0, ...lots.rows.keys()) + 1;
  const total = lots === null ? 0 : (known ?? reached + LOT);
  const full = total * ROW;
  const scale = full > HIGHEST ? full / HIGHEST : 1;
  const firstSeen = Math.floor((top * scale) / ROW);
  const seen = Math.ceil(height / ROW);
  const first = Math.max(0, Math.min(firstSeen, total - seen) - MORE);
  const stop = Math.min(total, first + seen + 2 * MORE);

  function fetchLot(number: number, keepsOld: boolean, stopped: AbortSignal): void {
    if (pending.current.has(number) || stopped.aborted) return;
    if (pending.current.size === 0) setSince(Date.now());
    ask.current = `${Date.now()}-${Math.random()}`;
    pending.current.add(number);
    askRows(props.route ?? "rows", { ...props.asked, ask: ask.current, sort: props.sort, offset: String(number * LOT), limit: String(LOT) }, stopped).then(
      (rows) => {
        if (stopped.aborted) return;
        answered(number);
        const facts = rows.schema.metadata;
        const given = facts.get("total") ?? "";
        const { columns, rows: cells } = props.shape ? props.shape(rows) : { columns: columnsOf(rows), rows: cellsOf(rows) };
        setError("");
        setLots((old) => {
          const same = keepsOld && old !== null && isOfQuestion(old);
          const all = new Map(same ? old.rows : []);
          cells.forEach((each, at) => all.set(number * LOT + at, each));
          const total = given === "" ? (facts.get("last") ? number * LOT + cells.length : null) : Number(given);
          return { asked: props.asked, sort: props.sort, columns, total, rows: all };
        });
      },
      (reason: Error) => {
        if (stopped.aborted) return; // what is pending now belongs to another question
        answered(number);
        const said = reason instanceof Refused ? reason.message : String(reason);
        // Rows that cannot be had in another order stay in the one that they have.
        if (props.onSort && lots !== null && lots.sort !== props.sort && isOfQuestion(lots)) {
          setUnsorted(said);
          props.onSort(lots.sort, true);
          return;
        }
        setError(said);
        setLots(null); // and from the top again, because rows far down may be what takes too long
        setTop(0);
        setActive(0);
      },
    );
  }

  function isOfQuestion(old: Lots): boolean {
    return JSON.stringify(old.asked) === JSON.stringify(props.asked);
  }
  function answered(number: number): void {
    pending.current.delete(number);
    if (pending.current.size === 0) setSince(null);
  }
  function cancel(): void {
    stopped.current.abort();
    setSince(null);
    setCancelled(true);
  }

  const stopped = useRef(new AbortController());
  useEffect(() => setUnsorted(""), [JSON.stringify(props.asked)]);
  useEffect(() => {
    stopped.current.abort();
    stopped.current = new AbortController();
    pending.current = new Set();
    setCancelled(false);
    const { signal } = stopped.current;
    if (lots !== null && current.current !== question) {
      const at = props.keys.map((name) => lots.columns.findIndex((each) => each.name === name));
      const old = new Map<string, Cells>();
      for (let row = first; row < stop; row += 1) {
        const cells = lots.rows.get(row);
        if (cells) old.set(at.map((each) => cells[each]).join("\u0000"), cells);
      }
      setBefore(old);
    }
    current.current = question;
    setCounted(null);
    setUncounted("");
    fetchLot(Math.floor(Math.max(0, first) / LOT), false, signal);
    if (props.route) return;
    const timer = setTimeout(() => {
      askJson<{ rows: number }>("count", props.asked, signal).then(
        (found) => setCounted(found.rows),
        (reason: Error) => { if (!signal.aborted) setUncounted(reason.message); },
      );
    }, 250);
    return () => clearTimeout(timer);
  }, [question, attempt]);
  useEffect(() => {
    if (lots === null) return;
    for (let lot = Math.floor(first / LOT); lot * LOT < stop; lot += 1) {
      if (!lots.rows.has(Math.min(stop - 1, lot * LOT)) || (lot * LOT < first && !lots.rows.has(first))) {
        fetchLot(lot, true, stopped.current.signal);
      }
    }
  }, [first, stop, lots]);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setHeight(entry.contentRect.height));
    if (frame.current) observer.observe(frame.current);
    return () => observer.disconnect();
  }, [lots === null]);

  // The line of answers is one element in each of these, so that the focus stays there when its button goes away.
  if (error) {
    return (
      <>
        <div class="answers">
          <p class="error" role="alert">{error}</p>
          <button onClick={() => { setError(""); setAttempt(attempt + 1); }}>Read again</button>
          {props.sort && props.onSort && <button onClick={() => { setError(""); props.onSort?.(""); }}>Read without this order</button>}
        </div>
      </>
    );
  }
  if (isCancelled) {
    return (
      <>
        <div class="answers">
          <p class="quiet" role="status">Cancelled.</p>
          <button onClick={() => setAttempt(attempt + 1)}>Read again</button>
        </div>
      </>
    );
  }
  const waiting = since !== null && <Waiting key={since} since={since} doing="Reading" ask={ask.current} cancel={cancel} />;
  if (lots === null) return <div class="answers">{!props.isCounted && <p class="quiet" role="status">Reading…</p>}{waiting}</div>;
  const keyAt = props.keys.map((name) => lots.columns.findIndex((each) => each.name === name));
  const isKey = new Set(props.keys);

  function move(event: KeyboardEvent): void {
    if (event.target !== event.currentTarget) return; // a heading, which sorts
    const moves: Record<string, number> = {
      ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + seen - 2, PageUp: active - seen + 2,
      Home: 0, End: total - 1,
    };
    if (event.key === "Enter") {
      open(active);
      return;
    }
    if (!(event.key in moves)) return;
    event.preventDefault();
    const wanted = Math.max(0, Math.min(total - 1, moves[event.key]));
    setActive(wanted);
    const box = frame.current;
    if (!box) return;
    const y = (wanted * ROW) / scale;
    if (y < box.scrollTop || scale > 1) box.scrollTop = y;
    else if (y + ROW > box.scrollTop + box.clientHeight - ROW) box.scrollTop = y + 2 * ROW - box.clientHeight;
  }
  function open(row: number): void {
    const cells = lots?.rows.get(row);
    if (!cells || !lots) return;
    props.onOpen?.(Object.fromEntries(lots.columns.map((each, at) => [each.name, cells[at]])), lots.columns);
  }
  const nameOf = (cells: Cells) => keyAt.map((each) => cells[each]).join("\u0000");
  let met = 0;
  for (let row = first; row < stop; row += 1) {
    const cells = lots.rows.get(row);
    if (cells && before.has(nameOf(cells))) met += 1;
  }
  const hasMarks = !props.kindOf && props.keys.length > 0 && met > 0 && 2 * met >= before.size; // else these are other rows, and all of them would be marked
  const rows = [];
  for (let row = first; row < stop; row += 1) {
    const cells = lots.rows.get(row);
    const old = cells && hasMarks ? before.get(nameOf(cells)) : undefined;
    const isNew = hasMarks && cells !== undefined && old === undefined;
    rows.push(
      <tr key={row} role="row" aria-rowindex={row + 2} class={row === active ? "active" : undefined} id={`row-${row}`}
        onClick={() => setActive(row)} onDblClick={() => open(row)}>
        {lots.columns.map((column, at) => {
          const isChanged = cells && old && old[at] !== cells[at] && !isKey.has(column.name);
          const own = cells ? props.kindOf?.(cells, at) : "";
          const kind = [own, column.isNumber ? "number" : "", isChanged ? "changed" : "", isNew && at === 0 ? "new" : ""];
          return <Cell key={column.name} text={cells ? cells[at] : undefined} kind={kind.join(" ").trim()} role="gridcell" />;
        })}
      </tr>,
    );
  }
  const onSort = props.onSort && ((sort: string) => { setUnsorted(""); props.onSort?.(sort); });
  return (
    <>
      {unsorted && <p class="error" role="alert">{unsorted}</p>}
      <div class="answers">{!props.isCounted && <p class="quiet" role="status">
        {known !== null ? `${count(known)} ${known === 1 ? "row" : "rows"}` : uncounted ? `The number of rows is unknown: ${uncounted}` : "counting the rows…"}
        {props.onOpen && <span class="hint"> · Enter or a double click opens the life of a key</span>}
      </p>}{waiting}</div>
      {props.isEditable && total > 0 && <EditRow asked={{ ...props.asked, sort: lots.sort }} row={active} cells={lots.rows.get(active)} />}
      <div ref={frame} class="grid" onScroll={(event) => setTop(event.currentTarget.scrollTop)} onKeyDown={move}
        tabIndex={0} role="grid" aria-label={props.label ?? "rows of the state"} aria-activedescendant={first <= active && active < stop ? `row-${active}` : undefined}
        aria-rowcount={known === null ? -1 : known + 1}
        aria-busy={!isOfQuestion(lots)}>
        <table role="presentation" class="rows">
          <thead role="rowgroup">
            <tr role="row" aria-rowindex={1}>
              {lots.columns.map((column) => <Heading key={column.name} column={column} {...props} onSort={onSort} isKey={isKey.has(column.name)} />)}
            </tr>
          </thead>
          <tbody role="rowgroup">
            <tr class="space" aria-hidden="true"><td style={{ height: `${(first * ROW) / scale}px` }} colSpan={lots.columns.length} /></tr>
            {rows}
            <tr class="space" aria-hidden="true"><td style={{ height: `${Math.max(0, (total - stop) * ROW) / scale}px` }} colSpan={lots.columns.length} /></tr>
          </tbody>
        </table>
      </div>
    </>
  );
}

function Heading(props: { column: Column; sort: string; isKey: boolean; onSort?: (sort: string) => void }) {
  const { name, type, isNumber } = props.column;
  const { onSort } = props;
  const shown = <>{name}{props.isKey && <span class="keymark">key</span>}</>;
  if (!onSort) return <th role="columnheader" class={isNumber ? "plain number" : "plain"} title={type}>{shown}</th>;
  const way = props.sort === name ? "ascending" : props.sort === `-${name}` ? "descending" : "none";
  const next = way === "none" ? name : way === "ascending" ? `-${name}` : "";
  return (
    <th role="columnheader" aria-sort={way} class={isNumber ? "number" : undefined} title={type}>
      <button onClick={() => onSort(next)}>
        {shown}{way === "ascending" ? " ↑" : way === "descending" ? " ↓" : ""}
      </button>
    </th>
  );
}

export function Cell(props: { text: string | null | undefined; kind: string; role?: "gridcell" }) {
  const { text, kind, role } = props;
  if (text === undefined) return <td role={role} class={kind}><span class="null">…</span></td>;
  if (text === null) return <td role={role} class={kind}><span class="null">null</span></td>;
  return (
    <td role={role} class={kind} title={text.length > 30 ? text : undefined}>
      {kind.includes("changed") && <span class="mark" title="changed">Δ</span>}
      {kind.includes("new") && <span class="mark" title="not on this page before">+</span>}
      {text === "" ? <span class="null">empty text</span> : text}
    </td>
  );
}
