// The age of rows, and those that are past their end by a clock of the state.

import * as Plot from "@observablehq/plot";
import { askJson } from "../asking";
import { Chart } from "../chart";
import { count, moment } from "../texts";
import { Numbers } from "./numbers";
import { short } from "./over-versions";
import { Part, momentOf } from "./part";

type Clock = "stream_time" | "commit_time";

interface Found {
  clock: Clock;
  at: number | null;
  edges: number[];
  counts: number[] | null;
  later: number | null;
  unknown: number | null;
  rows: number | null; // null where the table keeps only the rows of now, without their times
  endings: { field: string; clock: Clock; at: number | null; rows: number; ended: number | null }[];
}

const CLOCKS: Record<Clock, string> = { stream_time: "the watermark or newest state time", commit_time: "the time of the commit" };

export function Ages(props: { asked: Record<string, string>; isHistory: boolean }) {
  return (
    <section aria-label="age">
      <h2>Age</h2>
      <Part<Found> label="Read the ages" of={momentOf(props.asked)}
        cost={props.isHistory ? "Reads the whole history." : "Reads the times of all rows of the moment shown."}
        ask={(signal, ask) => askJson("growth/ages", { ...props.asked, ask }, signal)}>
        {(found) => <Histogram found={found} />}
      </Part>
    </section>
  );
}

function Histogram({ found }: { found: Found }) {
  const { edges, counts } = found;
  const names = edges.map((edge, at) => (at + 1 < edges.length ? `${span(edge)} to ${span(edges[at + 1])}` : `${span(edge)} or more`));
  const bars = (counts ?? []).map((rows, at) => ({ name: names[at], short: span(edges[at]), rows }));
  const rest: [string, number | null][] = [["changed before what is kept", found.unknown], ["changed after that moment", found.later]];
  return (
    <>
      {found.rows === null && <p role="status">Ages are unknown, because the times at which rows changed are not known.</p>}
      {found.rows !== null && found.at === null && <p role="status">Ages are unknown, because the table does not say {CLOCKS[found.clock]}.</p>}
      {found.at !== null && counts && (
        <>
          <p role="status">
            {count(found.rows)} {found.rows === 1 ? "row" : "rows"} by the time since their last change, counted from {CLOCKS[found.clock]}, {moment(found.at)}
            {rest.filter(([, rows]) => rows).map(([text, rows]) => `; ${count(rows)} ${text}`).join("")}.
          </p>
          <Chart label={`Rows by age: ${bars.filter((bar) => bar.rows).map((bar) => `${count(bar.rows)} of ${bar.name}`).join(", ")}`} inputs={[found]}
            options={(width) => ({
              height: 210, marginLeft: 64, marginBottom: 44,
              x: { type: "band", domain: bars.map((bar) => bar.short), label: "at least so old", tickRotate: width < 600 ? -45 : 0 }, y: { label: "rows", grid: true, ticks: 5, tickFormat: short },
              marks: [Plot.barY(bars, { x: "short", y: "rows", fill: "var(--past)", stroke: "var(--accent)", tip: true }), Plot.ruleY([0])],
            })} />
          <Numbers name="ages" columns={["Age", "Rows"]} rows={[...bars.map((bar): [string, number] => [bar.name, bar.rows]), ...rest]} />
        </>
      )}
      {found.endings.length > 0 && (
        <div class="scrolled" tabIndex={0} role="region" aria-label="rows past their end">
          <table class="facts">
            <thead>
              <tr><th scope="col">End of a row</th><th scope="col">Compared with</th><th scope="col" class="number">Rows with a known end</th><th scope="col" class="number">Past their end</th></tr>
            </thead>
            <tbody>
              {found.endings.map((each) => (
                <tr key={each.field}>
                  <td>{each.field}</td>
                  <td>{CLOCKS[each.clock]}{each.at === null ? ", which is unknown" : `, ${moment(each.at)}`}</td>
                  <td class="number">{count(each.rows)}</td>
                  <td class="number">{each.ended === null ? <span class="null">unknown</span> : count(each.ended)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

const UNITS: [number, string][] = [[31_536_000, "y"], [86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];

function span(seconds: number): string {
  const [size, unit] = UNITS.find(([least]) => seconds >= least) ?? [1, "s"];
  return `${seconds / size} ${unit}`;
}
