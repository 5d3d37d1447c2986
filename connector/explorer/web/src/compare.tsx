// Two moments side by side: the rows that were added, changed and removed.

import type { Table } from "apache-arrow";
import { useEffect, useState } from "preact/hooks";
import { askRows } from "./asking";
import { parsedExactly, shownExactly } from "./exact";
import { Filters } from "./filters";
import { cellsOf, columnsOf } from "./grid";
import { count } from "./texts";
import type { View } from "./view";

const SIGNS: Record<string, string> = { added: "+", changed: "Δ", removed: "−" };

export function Compare(props: { view: View; columns: string[]; first: number; version: number; go: (change: Partial<View>) => void }) {
  const { view } = props;
  const from = view.from || String(Math.max(props.first, props.version - 1));
  const given = JSON.stringify([view.from, view.from_as_of]);
  const [typed, setTyped] = useState({ given, from, time: view.from_as_of, isTyped: false });
  // What is typed stays while newer versions come, until it is another comparison.
  const { from: text, time } = typed.isTyped && typed.given === given ? typed : { from, time: view.from_as_of };
  const type = (part: { from?: string; time?: string }) => setTyped({ given, from: text, time, isTyped: true, ...part });
  const [found, setFound] = useState<Table | null>(null);
  const [error, setError] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    setFound(null);
    setError("");
    const asked = {
      place: view.place, table: view.table, where: view.where,
      from_version: from, from_as_of: view.from_as_of, to_version: String(props.version), to_as_of: view.as_of,
    };
    askRows("diff", asked, stop.signal).then(setFound, (reason: Error) => {
      if (!stop.signal.aborted) setError(reason.message);
    });
    return () => stop.abort();
  }, [view.place, view.table, from, view.from_as_of, props.version, view.as_of, view.where]);
  const facts = found?.schema.metadata;
  const columns = found ? columnsOf(found) : [];
  const rows = found ? cellsOf(found) : [];
  const at = (name: string) => columns.findIndex((each) => each.name === name);
  const differing = ["added", "changed", "removed"].reduce((sum, kind) => sum + Number(facts?.get(kind) ?? 0), 0);
  const keys = columns.filter((each) => !each.name.startsWith("_"));
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
      {!found && !error && <p class="quiet" role="status">Reading…</p>}
      {found && (
        <p role="status" class="sums">
          {["added", "changed", "removed"].map((kind) => (
            <span key={kind} class={kind}>{SIGNS[kind]} {count(Number(facts?.get(kind) ?? 0))} {kind}</span>
          ))}
        </p>
      )}
      {found && view.where && <p class="quiet">Rows that meet the filters before or after.</p>}
      {found && differing > rows.length && <p class="quiet">The first {count(rows.length)} of {count(differing)} rows that differ.</p>}
      {found && <Places text={facts?.get("places")} place={facts?.get("place") ?? ""} />}
      {rows.length > 0 && (
        <div class="scrolled" tabIndex={0} role="region" aria-label="rows that differ">
          <table class="facts">
            <thead>
              <tr><th scope="col">Change</th>{keys.map((each) => <th key={each.name} scope="col">{each.name}</th>)}
                <th scope="col">Before</th><th scope="col">After</th></tr>
            </thead>
            <tbody>
              {rows.map((row, number) => {
                const kind = row[at("_change")] ?? "";
                const changed = parsedExactly(row[at("_changed_columns")]) as string[] | null;
                return (
                  <tr key={number} class={kind}>
                    <td>{SIGNS[kind]} {kind}</td>
                    {keys.map((each) => <td key={each.name}>{row[at(each.name)] ?? <span class="null">null</span>}</td>)}
                    <td><Values text={row[at("_old")]} changed={changed} /></td>
                    <td><Values text={row[at("_new")]} changed={changed} /></td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
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

function Values(props: { text: string | null; changed: string[] | null }) {
  const values = parsedExactly(props.text);
  if (props.text === null) return null;
  if (values === null || typeof values !== "object") return <>{props.text}</>;
  return (
    <>
      {Object.entries(values).map(([name, value]) => {
        const isChanged = props.changed?.includes(name);
        const text = shownExactly(value);
        return (
          <span key={name} class={isChanged ? "pair changed" : "pair"}>
            {isChanged && <span class="mark" title="changed">Δ</span>}{name} {text}
          </span>
        );
      })}
    </>
  );
}
