// Rows by partition or key group, and how uneven they are.

import * as Plot from "@observablehq/plot";
import { askJson } from "../asking";
import { Chart } from "../chart";
import { count } from "../texts";
import { Numbers } from "./numbers";
import { short } from "./over-versions";
import { Part, momentOf } from "./part";

interface Placed {
  column: string;
  values: (string | null)[];
  rows: number[];
  most: number | null;
  median: number | null;
  ratio: number | null;
}

export function Skew(props: { asked: Record<string, string> }) {
  return (
    <section aria-label="skew">
      <h2>Skew over partitions</h2>
      <Part<Placed[]> label="Count by partition" cost="Reads all rows of the moment shown." of={momentOf(props.asked)}
        ask={(signal, ask) => askJson("growth/skew", { ...props.asked, ask }, signal)}>
        {(found) => found.length === 0
          ? <p role="status">Rows of this table have no partition or key group.</p>
          : found.map((each) => <Place key={each.column} placed={each} />)}
      </Part>
    </section>
  );
}

function Place(props: { placed: Placed }) {
  const { column, values, rows, most, median, ratio } = props.placed;
  if (most === null || median === null || ratio === null) return <p role="status">There is no row.</p>;
  const bars = rows.map((each, at) => ({ at, value: values[at] ?? "null", rows: each }));
  const said = `${count(rows.length)} values of ${column} have rows: at most ${count(most)}, median ${count(median)}, ratio ${ratio.toFixed(2)}`;
  return (
    <>
      <p role="status">{said}. <span class="quiet">A {column} without rows is not counted.</span></p>
      <Chart label={`Rows by ${column}. ${said}`} inputs={[props.placed]}
        options={(width) => {
          const every = Math.max(1, Math.ceil(bars.length / Math.max(2, Math.floor(width / 60))));
          return {
            height: 180, marginLeft: 64,
            x: { type: "linear", label: column, domain: [-0.5, bars.length - 0.5], ticks: bars.filter((_, at) => at % every === 0).map((bar) => bar.at) as never, tickFormat: (at: number) => bars[at]?.value ?? "" },
            y: { label: "rows", grid: true, ticks: 5, tickFormat: short },
            marks: [
              Plot.rect(bars, { x1: (bar: { at: number }) => bar.at - 0.45, x2: (bar: { at: number }) => bar.at + 0.45, y1: 0, y2: "rows", fill: "var(--past)", stroke: bars.length < 300 ? "var(--accent)" : undefined, tip: { channels: { [column]: "value" }, format: { x: false } } }),
              Plot.ruleY([0]), Plot.ruleY([median], { stroke: "currentColor", strokeDasharray: "4 3" }),
              Plot.text([median], { y: (each: number) => each, frameAnchor: "right", text: () => "median", dy: -7, textAnchor: "end", stroke: "var(--panel)", strokeWidth: 4, fill: "var(--text)" }),
            ],
          };
        }} />
      <Numbers name={`rows by ${column}`} columns={[column, "Rows"]} rows={bars.map((bar) => [bar.value, bar.rows])} />
    </>
  );
}
