// Two moments side by side: the rows that were added, changed and removed.

import type { Table } from "apache-arrow";
import { useEffect, useState } from "preact/hooks";
import { askRows } from "./asking";
import { parsedExactly, shownExactly } from "./exact";
import { Filters } from "./filters";
import { type Cells, type Column, Grid, type Shape, cellsOf, columnsOf } from "./grid";
import { Waiting } from "./exports/waiting";
import { count } from "./texts";
import type { View } from "./view";

const KINDS = ["added", "changed", "removed"];
const [OLD, NEW] = ["_old.", "_new."];
const NO_KEYS: string[] = [];
const SIGNS: Record<string, string> = { added: "+", changed: "Δ", removed: "−" };

export function Compare(props: { view: View; columns: string[]; first: number; version: number; go: (change: Partial<View>) => void }) {
  const { view } = props;
  const from = view.from || String(Math.max(props.first, props.version - 1));
  const given = JSON.stringify([view.from, view.from_as_of]);
  const [typed, setTyped] = useState({ given, from, time: view.from_as_of, isTyped: false });
  // What is typed stays while newer versions come, until it is another comparison.
  const { from: text, time } = typed.isTyped && typed.given === given ? typed : { from, time: view.from_as_of };
  const type = (part: { from?: string; time?: string }) => setTyped({ given, from: text, time, isTyped: true, ...part });
  const [facts, setFacts] = useState<Map<string, string> | null>(null);
  const [error, setError] = useState("");
  const [reading, setReading] = useState<{ since: number; ask: string; cancel: () => void } | null>(null);
  const [attempt, setAttempt] = useState(0);
  const asked = {
    place: view.place, table: view.table, where: view.where,
    from_version: from, from_as_of: view.from_as_of, to_version: String(props.version), to_as_of: view.as_of,
  };
  const question = JSON.stringify(asked);
  useEffect(() => {
    const stop = new AbortController();
    setFacts(null);
    setError("");
    const ask = `${Date.now()}-${Math.random()}`;
    setReading({ since: Date.now(), ask, cancel: () => { stop.abort(); setReading(null); } });
    askRows("diff", { ...asked, limit: "0", ask }, stop.signal).then((found) => setFacts(found.schema.metadata), (reason: Error) => {
      if (!stop.signal.aborted) setError(reason.message);
    });
    return () => stop.abort();
  }, [question, attempt]);
  const number = (name: string) => Number(facts?.get(name) ?? 0);
  const differing = KINDS.reduce((sum, kind) => sum + number(kind), 0);
  return (
    <section class="compare" aria-label="two moments">
      <form class="finder" onSubmit={(event) => { event.preventDefault(); props.go({ from: text, from_as_of: time }); }}>
        <label><span>From version</span><input value={text} inputMode="numeric" onInput={(event) => type({ from: event.currentTarget.value })} /></label>
        <label><span>at state time</span><input class="time" value={time} placeholder="the newest" onInput={(event) => type({ time: event.currentTarget.value })} /></label>
        <span>to version {count(props.version)}{view.as_of && ` at ${view.as_of}`}</span>
        <button>Compare</button>
      </form>
      <Filters where={view.where} columns={props.columns} go={(where) => props.go({ where })} />
      {error && <p class="error" role="alert">{error}</p>}
      {!facts && !error && reading && <div class="answers"><p class="quiet" role="status">Reading…</p><Waiting {...reading} doing="Comparing" /></div>}
      {!facts && !error && !reading && (
        <div class="answers"><p class="quiet" role="status">Cancelled.</p><button onClick={() => setAttempt(attempt + 1)}>Compare again</button></div>
      )}
      {facts && (
        <p role="status" class="sums">
          {KINDS.map((kind) => <span key={kind} class={kind}>{SIGNS[kind]} {count(number(kind))} {kind}</span>)}
        </p>
      )}
      {facts && view.where && <p class="quiet">Rows that meet the filters before or after.</p>}
      {facts && differing > number("kept") && (
        <p class="quiet">{count(number("kept"))} of {count(differing)} rows that differ fit into the explorer's file, and are shown; Export… has all.</p>
      )}
      {facts && <Places text={facts.get("places")} place={facts.get("place") ?? ""} />}
      {facts && differing > 0 && <Grid route="diff_rows" label="rows that differ" isCounted asked={asked} sort="" keys={NO_KEYS} shape={shapeOf} kindOf={kindOf} />}
    </section>
  );
}

function Places(props: { text: string | undefined; place: string }) {
  const rows = (parsedExactly(props.text) ?? []) as string[][];
  if (rows.length === 0) return null;
  return (
    <details>
      <summary>By {props.place}</summary>
      <div class="scrolled" tabIndex={0} role="region" aria-label={`differences by ${props.place}`}>
        <table class="facts">
          <thead><tr><th scope="col" class="number">{props.place}</th><th scope="col" class="number">added</th><th scope="col" class="number">changed</th><th scope="col" class="number">removed</th></tr></thead>
          <tbody>
            {rows.map(([place, ...numbers]) => (
              <tr key={place}><th scope="row" class="number">{shownExactly(place)}</th>{numbers.map((each, at) => <td key={at} class="number">{count(Number(shownExactly(each)))}</td>)}</tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

// A column for the change, the keys and each value: as it was and is where it changed, else as it is or was.
function shapeOf(found: Table): Shape {
  const columns = columnsOf(found);
  const at = new Map(columns.map((each, index) => [each.name, index]));
  const values = columns.filter((each) => each.name.startsWith(NEW)).map((each) => ({ ...each, name: each.name.slice(NEW.length) }));
  const keys = columns.filter((each) => !each.name.startsWith("_"));
  const rows = cellsOf(found).map((cells) => {
    const cell = (name: string) => cells[at.get(name) as number];
    const kind = cell("_change") ?? "";
    const changed = parsedExactly(cell("_changed_columns")) as string[] | null;
    const valueOf = ({ name }: Column) => {
      if (changed?.includes(name)) return `${textOf(cell(OLD + name))} → ${textOf(cell(NEW + name))}`;
      return cell((kind === "removed" ? OLD : NEW) + name);
    };
    return [`${SIGNS[kind]} ${kind}`, ...keys.map((each) => cell(each.name)), ...values.map(valueOf), JSON.stringify(changed?.map((name) => 1 + keys.length + values.findIndex((each) => each.name === name)) ?? [])];
  });
  return { columns: [{ name: "change", type: "", isNumber: false }, ...keys, ...values], rows };
}

function kindOf(cells: Cells, at: number): "changed" | "" {
  return (JSON.parse(cells[cells.length - 1] ?? "[]") as number[]).includes(at) ? "changed" : "";
}

function textOf(cell: string | null): string {
  return cell === null ? "null" : cell === "" ? "empty text" : cell;
}
