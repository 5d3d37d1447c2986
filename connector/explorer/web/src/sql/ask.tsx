// Questions in SQL: the editor, and the answer as rows or as a chart.

import "./sql.css";

import { useEffect, useRef, useState } from "preact/hooks";
import { askJson } from "../asking";
import { Grid } from "../grid";
import { Notices } from "../notices";
import type { PlaceFacts, TableFacts } from "../facts";
import { count } from "../texts";
import type { View } from "../view";
import { type AnswerFacts, AnswerChart, defaultChoice } from "./answer-chart";
import { Editor, type EditorHandle, type Problem } from "./editor";
import { type Moment, NOW, startOf } from "./moment";
import { useNames } from "./names";

type Go = (change: Partial<View>, quietly?: boolean) => void;

interface Done {
  asked: Record<string, string>;
  facts: AnswerFacts;
}

// The page of a place, without a table.
export function AskPlace(props: { places: PlaceFacts[]; view: View; go: Go }) {
  const { places, view, go } = props;
  const open = places.filter((each) => each.error === null);
  const place = places.find((each) => String(each.place) === view.place);
  const first = place?.tables.find((each) => each.last !== null)?.store ?? "";
  return (
    <main class="table">
      <div class="title">
        <h1>Ask in SQL</h1>
        {places.length > 1 ? (
          <label><span>Place</span>
            <select value={view.place} onChange={(event) => go({ place: event.currentTarget.value })}>
              {open.map((each) => <option key={each.place} value={String(each.place)}>{each.place + 1}. {each.path}</option>)}
            </select>
          </label>
        ) : <p class="quiet">{place?.path}</p>}
      </div>
      {place?.error && <p class="error" role="alert">{place.error}</p>}
      <Notices of={JSON.stringify([view.place, view.sql])} />
      {place && !place.error && <Ask key={view.place} table={first} moment={NOW} view={view} go={go} />}
    </main>
  );
}

// The tab of a table, at the moment that the scrubber shows.
export function AskTable(props: { table: TableFacts; version: number; view: View; go: Go }) {
  const { table, view } = props;
  const moment = { table: table.store, version: view.version === "" ? null : props.version, as_of: view.as_of };
  return <Ask table={table.store} moment={moment} view={view} go={props.go} />;
}

function Ask(props: { table: string; moment: Moment; view: View; go: Go }) {
  const { view, go, moment } = props;
  const names = useNames(view.place);
  const start = startOf(props.table, moment, names);
  const [typed, setTyped] = useState<string | null>(null); // null while it is what was given
  const [turn, setTurn] = useState(0);
  const [done, setDone] = useState<Done | null>(null);
  const [running, setRunning] = useState<AbortController | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [said, setSaid] = useState("");
  const [error, setError] = useState("");
  const handle = useRef<EditorHandle | null>(null);
  const [given, setGiven] = useState({ text: view.sql || start });
  const text = typed ?? given.text;

  useEffect(() => { if (typed === null && !view.sql) setGiven({ text: start }); }, [start]);
  useEffect(() => {
    setTyped(null);
    setGiven({ text: view.sql || start });
    setDone(null);
    setProblem(null);
    setError("");
    setSaid("");
    if (!view.sql) return;
    const stop = new AbortController();
    const asked = { place: view.place, sql: view.sql, run: `${Date.now()}-${Math.random()}` };
    setRunning(stop);
    askJson<AnswerFacts>("sql", asked, stop.signal).then(
      (facts) => { setRunning(null); setDone({ asked, facts }); },
      (reason: Error) => {
        if (stop.signal.aborted) return;
        setRunning(null);
        setError(reason.message);
        const place = /^line (\d+), column (\d+): /.exec(reason.message);
        if (place) setProblem({ message: reason.message.slice(place[0].length), line: Number(place[1]), column: Number(place[2]) });
      },
    );
    return () => stop.abort();
  }, [view.place, view.sql, turn]);

  function run(): void {
    if (!text.trim()) return;
    if (text === view.sql) setTurn(turn + 1);
    else go({ sql: text, order: "", chart: "" });
  }
  function startOver(): void {
    setTyped(null);
    setGiven({ text: start });
    if (view.sql) go({ sql: "", order: "", chart: "" });
  }
  function cancel(): void {
    running?.abort();
    setRunning(null);
    setSaid("Cancelled.");
  }
  function shown(isChart: boolean): void {
    if (done) go({ chart: isChart ? JSON.stringify(defaultChoice(done.facts.columns)) : "" });
  }
  const canDraw = done !== null && done.facts.columns.some((each) => each.kind === "number");
  return (
    <section class="ask" aria-label="question in SQL"
      onKeyDown={(event) => { if (event.key === "Escape" && running && !event.defaultPrevented) cancel(); }}>
      <Editor given={given} names={names} moment={moment} problem={problem} onText={setTyped} onRun={run} handle={handle} />
      <div class="run">
        {running ? <button onClick={cancel}>Cancel</button> : <button onClick={run} disabled={!text.trim()}>Run</button>}
        {text !== start && <button onClick={startOver}>Start over</button>}
        <p role="status" class="quiet">{running ? "Running…" : done ? summary(done.facts) : said}</p>
        <p class="quiet keys">
          <kbd>Ctrl</kbd> <kbd>Enter</kbd> runs · <kbd>Escape</kbd> cancels · <kbd>Ctrl</kbd> <kbd>Space</kbd> completes ·{" "}
          <kbd>Tab</kbd> leaves the editor
        </p>
      </div>
      {error && (
        <div class="refusal">
          <p class="error" role="alert">{error}</p>
          {problem && <button onClick={() => handle.current?.show(problem)}>Go to line {problem.line}, column {problem.column}</button>}
        </div>
      )}
      {done?.facts.cut && <p class="quiet">⚠ The answer has more rows; the explorer keeps the first {count(done.facts.rows)}. Aggregate them, or read all with statestore sql.</p>}
      {done && (
        <div class="tabs" role="group" aria-label="the answer as">
          <button aria-pressed={!view.chart} onClick={() => shown(false)}>Rows</button>
          <button aria-pressed={!!view.chart} disabled={!canDraw} onClick={() => shown(true)}>Chart</button>
          {!canDraw && <span class="quiet">A chart needs a column of numbers.</span>}
        </div>
      )}
      {done && (!view.chart || !canDraw) && (
        <Grid key={done.asked.run} route="sql/rows" label="rows of the answer" asked={done.asked} sort={view.order} keys={[]}
          onSort={(order, quietly) => go({ order }, quietly)} />
      )}
      {done && view.chart && canDraw && (
        <AnswerChart key={done.asked.run} asked={done.asked} facts={done.facts} chosen={view.chart} go={(chart) => go({ chart })} />
      )}
      {!done && !running && !error && (
        <p class="quiet">
          DuckDB's SQL over the tables of this place. A table takes VERSION AS OF and TIMESTAMP AS OF; history('…') lists
          every version and changes('…', first, last) what changed. Nothing is written.
        </p>
      )}
    </section>
  );
}

function summary(facts: AnswerFacts): string {
  const seconds = facts.seconds < 0.1 ? "under 0.1 s" : `${facts.seconds.toFixed(1)} s`;
  return `${count(facts.rows)} ${facts.rows === 1 ? "row" : "rows"} in ${seconds}`;
}
