// Two moments side by side: the rows that were added, changed and removed.

import type { Table } from "apache-arrow";
import { useEffect, useState } from "preact/hooks";
import { askRows } from "./asking";
import { cellsOf, columnsOf } from "./grid";
import { count } from "./texts";
import type { View } from "./view";

const SIGNS: Record<string, string> = { added: "+", changed: "Δ", removed: "−" };

export function Compare(props: { view: View; first: number; version: number; go: (change: Partial<View>) => void }) {
  const { view } = props;
  const from = view.from || String(Math.max(props.first, props.version - 1));
  const [text, setText] = useState(from);
  const [found, setFound] = useState<Table | null>(null);
  const [error, setError] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    setText(from);
    setFound(null);
    setError("");
    const asked = { place: view.place, table: view.table, from_version: from, to_version: String(props.version), to_as_of: view.as_of };
    askRows("diff", asked, stop.signal).then(setFound, (reason: Error) => {
      if (!stop.signal.aborted) setError(reason.message);
    });
    return () => stop.abort();
  }, [view.place, view.table, from, props.version, view.as_of]);
  const facts = found?.schema.metadata;
  const columns = found ? columnsOf(found) : [];
  const rows = found ? cellsOf(found) : [];
  const at = (name: string) => columns.findIndex((each) => each.name === name);
  const keys = columns.filter((each) => !each.name.startsWith("_"));
  return (
    <section class="compare" aria-label="two moments">
      <form class="finder" onSubmit={(event) => { event.preventDefault(); props.go({ from: text }); }}>
        <label><span>From version</span><input value={text} inputMode="numeric" onInput={(event) => setText(event.currentTarget.value)} /></label>
        <span>to version {count(props.version)}</span>
        <button>Compare</button>
      </form>
      {error && <p class="error" role="alert">{error}</p>}
      {!found && !error && <p class="quiet" role="status">Reading…</p>}
      {found && (
        <p role="status" class="sums">
          {["added", "changed", "removed"].map((kind) => (
            <span key={kind} class={kind}>{SIGNS[kind]} {count(Number(facts?.get(kind) ?? 0))} {kind}</span>
          ))}
        </p>
      )}
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
                const changed = parsed(row[at("_changed_columns")]) as string[] | null;
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

function parsed(text: string | null | undefined): unknown {
  if (!text) return null;
  try {
    return JSON.parse(text);
  } catch {
    return null; // a long cell is cut
  }
}

function Values(props: { text: string | null; changed: string[] | null }) {
  const values = parsed(props.text);
  if (props.text === null) return null;
  if (values === null || typeof values !== "object") return <>{props.text}</>;
  return (
    <>
      {Object.entries(values).map(([name, value]) => {
        const isChanged = props.changed?.includes(name);
        const text = typeof value === "string" ? value : JSON.stringify(value);
        return (
          <span key={name} class={isChanged ? "pair changed" : "pair"}>
            {isChanged && <span class="mark" title="changed">Δ</span>}{name} {text}
          </span>
        );
      })}
    </>
  );
}
