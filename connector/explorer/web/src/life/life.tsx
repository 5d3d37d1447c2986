// The life of a key: its versions over state time and over commits, and each change with the commit that made it.

import "./life.css";

import { useEffect, useRef, useState } from "preact/hooks";
import { askJson, askRows } from "../asking";
import { Cell } from "../grid";
import type { TableFacts } from "../facts";
import { count } from "../texts";
import type { View } from "../view";
import { Commits } from "./commits";
import { Lanes } from "./lanes";
import { type Life, type Line, endText, lifeOf, shownColumns } from "./lives";
import { Plane } from "./plane";

const MOST = 2_000;

const PAUSE = 300; // milliseconds before all versions are counted, which would delay the life of the next key

interface Props {
  view: View;
  table: TableFacts;
  tables: TableFacts[];
  askTables: () => void;
  keys: string[];
  newest: number; // the newest version that the page knows
  go: (change: Partial<View>) => void;
}

export function KeyLife(props: Props) {
  const { view, go } = props;
  const [life, setLife] = useState<Life | null>(null);
  const [total, setTotal] = useState<number | null>(null);
  const [error, setError] = useState("");
  const [isAsked, setAsked] = useState(false);
  const [limit, setLimit] = useState("");
  const [uncounted, setUncounted] = useState(""); // why the versions were not counted
  const asked = { place: view.place, table: view.table, key: view.key, where: view.key ? "" : view.at };
  const question = JSON.stringify(asked);
  const [typed, setTyped] = useState({ question, text: view.key }); // for this question; a newer version takes nothing away
  const text = typed.question === question ? typed.text : view.key;
  const answered = useRef(""); // the question whose answer is shown, which stays until that of a newer version comes
  useEffect(() => setLimit(""), [question]);
  useEffect(() => {
    if (answered.current !== question + limit) {
      answered.current = "";
      setLife(null);
      setTotal(null);
      setAsked(view.key !== "" || view.at !== "");
    }
    setUncounted("");
    setError("");
    if (!view.key && !view.at) return;
    const stop = new AbortController();
    const now = { ...asked, seen: String(props.newest) };
    askRows("life", { ...now, limit }, stop.signal).then(
      (found) => {
        const next = lifeOf(found, props.keys);
        answered.current = question + limit;
        setAsked(false);
        setLife(next);
        props.askTables();
        setTotal(next.total);
        if (next.total === null) {
          const ask = () => askJson<{ rows: number }>("life_count", now, stop.signal).then(
            (all) => setTotal(all.rows),
            (reason: Error) => { if (!stop.signal.aborted) setUncounted(reason.message); },
          );
          const waiting = setTimeout(ask, PAUSE);
          stop.signal.addEventListener("abort", () => clearTimeout(waiting));
        }
      },
      (reason: Error) => { if (!stop.signal.aborted) { setAsked(false); setError(reason.message); } },
    );
    return () => stop.abort();
  }, [question, limit, props.newest]);
  return (
    <section class="life" aria-label="life of a key">
      <form class="finder" onSubmit={(event) => { event.preventDefault(); go({ key: text, at: "" }); }}>
        <label><span>Key</span>
          <input value={text} placeholder={exampleOf(props.keys)} onInput={(event) => setTyped({ question, text: event.currentTarget.value })} />
        </label>
        <button>Show its life</button>
      </form>
      {error && <p class="error" role="alert">{error}</p>}
      {isAsked && <p class="quiet" role="status">Reading…</p>}
      {life && life.lines.length === 0 && (
        <>
          <p role="status">This key has no version in what is known now.</p>
          <Plane view={view} life={life} keys={props.keys} go={go} />
        </>
      )}
      {life && life.lines.length > 0 && (
        <>
          <Lanes life={life} table={props.table} tables={props.tables} keys={props.keys} view={view} />
          <Plane view={view} life={life} keys={props.keys} go={go} />
          <Versions life={life} total={total} uncounted={uncounted} keys={props.keys} view={view} go={go} more={() => setLimit(String(MOST))} />
        </>
      )}
      {!life && !isAsked && !error && <p class="quiet">Type a key, or open one from the rows of the state.</p>}
    </section>
  );
}

function exampleOf(keys: string[]): string {
  const [first] = keys;
  return keys.length > 1 ? `values of ${keys.join(", ")}, or the first of them; a text with * for its beginning`
    : `a value of ${first ?? "the key"}; a text with * for its beginning`;
}

interface Shown {
  life: Life;
  total: number | null;
  uncounted: string;
  view: View;
  keys: string[];
  go: (change: Partial<View>) => void;
  more: () => void;
}

function Versions(props: Shown) {
  const { life, total } = props;
  const shown = shownColumns(life);
  const previous = new Map<string, Line>();
  const lines = life.lines.map((line) => {
    const before = previous.get(line.name);
    previous.set(line.name, line);
    return { line, before };
  });
  const commits = [...new Set(life.lines.map((line) => line.version).filter((each) => each !== null))] as number[];
  const isCut = total === null || total > life.lines.length;
  return (
    <>
      <p class="quiet" role="status">
        {total === null ? (props.uncounted ? `The number of versions is unknown: ${props.uncounted}` : "Counting the versions…") : `${count(total)} ${total === 1 ? "version" : "versions"}`}
        {isCut && `; the newest ${count(life.lines.length)} are shown`} in {count(commits.length)}{" "}
        {commits.length === 1 ? "commit" : "commits"}{!life.isTimed && "; their times are unknown, so versions are shown"}{" "}
        {isCut && life.lines.length < MOST && <button onClick={props.more}>Show up to {count(MOST)}</button>}
      </p>
      <div class="scrolled" tabIndex={0} role="region" aria-label="versions of the key">
        <table class="facts">
          <thead>
            <tr>
              <th scope="col">{life.isTimed ? "Valid from" : "In the state from"}</th><th scope="col">Until</th>
              {shown.map(({ column }) => <th key={column.name} scope="col" class={column.isNumber ? "number" : ""}>{column.name}</th>)}
              <th scope="col" class="number">Version</th>
            </tr>
          </thead>
          <tbody>
            {lines.slice().reverse().map(({ line, before }, number) => (
              <tr key={number}>
                <td>{endText(life, line.from) || "before what is kept"}</td>
                <td>{endText(life, line.to) || "still valid"}</td>
                {shown.map(({ column, at }) => {
                  // Rows of a bag are in the state side by side; only what took another's place is a change.
                  const isChanged = before && before.to !== null && line.from !== null && before.to <= line.from && before.cells[at] !== line.cells[at];
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
