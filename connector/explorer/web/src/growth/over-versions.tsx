// Rows, bytes and changes over versions.

import * as Plot from "@observablehq/plot";
import type { Table } from "apache-arrow";
import { useState } from "preact/hooks";
import { askRows } from "../asking";
import { Chart } from "../chart";
import { bytes, count, moment } from "../texts";
import { Numbers } from "./numbers";
import { Part } from "./part";

interface Run {
  first: number;
  version: number;
  time: number | null;
  rows: number | null;
  bytes: number | null;
  written: number | null;
  deleted: number | null;
}

function runsOf(found: Table): Run[] {
  const columns = ["first", "version", "time", "rows", "bytes", "written", "deleted"];
  return Array.from({ length: found.numRows }, (_, row) =>
    Object.fromEntries(columns.map((name) => [name, (found.getChild(name)?.get(row) ?? null) as number | null])) as unknown as Run);
}

export function OverVersions(props: { asked: Record<string, string>; version: number; newest: number }) {
  const [reads, setReads] = useState(false);
  const { place, table } = props.asked;
  return (
    <section aria-label="size over versions">
      <h2>Size over versions</h2>
      <Part<Run[]> key={String(reads)} label="" cost="" isReadAtOnce of={`up to version ${props.newest}`}
        ask={async (signal, ask) => runsOf(await askRows("growth/versions", { place, table, read: reads ? "1" : "", ask }, signal))}>
        {(runs) => <Runs runs={runs} version={props.version} count={reads ? null : () => setReads(true)} />}
      </Part>
    </section>
  );
}

const SERIES: { name: "rows" | "bytes"; title: string; text: (value: number) => string }[] = [
  { name: "rows", title: "Rows", text: count }, { name: "bytes", title: "Bytes of the files", text: bytes },
];

function Runs(props: { runs: Run[]; version: number; count: (() => void) | null }) {
  const { runs, version } = props;
  const isUnknown = (name: keyof Run) => runs.filter((run) => run[name] === null).length;
  const unknown = (["rows", "bytes", "written", "deleted"] as const).filter((name) => isUnknown(name) > 0);
  const isRun = runs.some((run) => run.first !== run.version);
  const changes = runs.flatMap((run) => [
    { version: run.version, kind: "written", rows: run.written }, { version: run.version, kind: "deleted", rows: run.deleted === null ? null : -run.deleted },
  ]).filter((each) => each.rows !== null);
  if (runs.length === 0) return <p role="status">There is no version yet.</p>;
  return (
    <>
      <p class="quiet">
        The line marks version {count(version)}, which is shown. {isRun && `Of many versions, ${count(runs.length)} are drawn; changes are summed between them. `}
        Bytes are those of all files that a version needs.
      </p>
      {unknown.length > 0 && (
        <div class="read">
          {props.count && unknown.some((name) => name !== "bytes") && <button onClick={props.count}>Count by reading</button>}
          <p class="quiet" role="status">
            Unknown{props.count ? " from metadata" : ""}: {unknown.map((name) => `${name} of ${count(isUnknown(name))} of ${count(runs.length)} versions`).join(", ")}. They are blank, not 0.
            {props.count && unknown.some((name) => name !== "bytes") && " To count them, the state of each drawn version and all changes are read."}
          </p>
        </div>
      )}
      <div class="two">
        {SERIES.map(({ name, title, text }) => {
          const known = runs.filter((run) => run[name] !== null);
          const unit = name === "rows" ? 1 : unitOf(Math.max(0, ...known.map((run) => run.bytes as number)));
          return (
            <div key={name}>
              <h3>{title}</h3>
              {known.length === 0 ? <p class="quiet">unknown</p> : (
                <Chart label={`${title} over versions: from ${text(known[0][name] as number)} at version ${known[0].version} to ${text(known[known.length - 1][name] as number)} at version ${known[known.length - 1].version}`}
                  inputs={[runs, version]}
                  options={() => ({
                    height: 180, marginLeft: 64,
                    x: { label: "version", domain: [runs[0].first, Math.max(runs[runs.length - 1].version, version, runs[0].first + 1)], tickFormat: wholeTick },
                    y: { label: name === "rows" ? null : bytes(unit).split(" ")[1], labelArrow: "none", transform: (value: number) => value / unit, grid: true, zero: true, ticks: 5, tickFormat: short },
                    marks: [
                      Plot.ruleY([0]),
                      Plot.line(runs, { x: "version", y: (run: Run) => run[name] ?? Number.NaN, stroke: "var(--accent)", strokeWidth: 2 }),
                      Plot.dot(known, { x: "version", y: name, r: 2.5, fill: "var(--accent)", tip: true }),
                      Plot.ruleX([version], { stroke: "currentColor", strokeDasharray: "4 3" }),
                    ],
                  })} />
              )}
            </div>
          );
        })}
      </div>
      <h3>Rows written (up) and deleted (down)</h3>
      {changes.length === 0 ? <p class="quiet">unknown</p> : (
        <Chart label={`Rows written and deleted over versions: ${count(sum(runs, "written"))} written and ${count(sum(runs, "deleted"))} deleted, as far as known`}
          inputs={[runs, version]}
          options={() => ({
            height: 180, marginLeft: 64,
            x: { label: "version", domain: [runs[0].first - 0.5, Math.max(runs[runs.length - 1].version, version) + 0.5], tickFormat: wholeTick },
            y: { label: null, grid: true, ticks: 5, tickFormat: (value: number) => short(Math.abs(value)) },
            marks: [
              Plot.rect(changes.filter((each) => each.rows !== 0), {
                x1: (each: { version: number }) => (runs.find((run) => run.version === each.version)?.first ?? each.version) - 0.45,
                x2: (each: { version: number }) => each.version + 0.45, y1: 0, y2: "rows",
                fill: (each: { kind: string }) => (each.kind === "written" ? "var(--past)" : "none"), stroke: "var(--accent)", tip: true,
              }),
              Plot.ruleY([0]),
              Plot.ruleX([version], { stroke: "currentColor", strokeDasharray: "4 3" }),
            ],
          })} />
      )}
      <Numbers name="sizes over versions" columns={["Version", "Time", "Rows", "Bytes", "Written", "Deleted"]}
        rows={runs.map((run) => [
          run.first === run.version ? count(run.version) : `${count(run.first)} to ${count(run.version)}`, moment(run.time) || null,
          run.rows, run.bytes, run.written, run.deleted,
        ])} />
    </>
  );
}

// The greatest power of 1024 that is not above a number of bytes.
function unitOf(most: number): number {
  return most < 1024 ? 1 : 1024 ** Math.min(5, Math.floor(Math.log2(most) / 10));
}

function sum(runs: Run[], name: "written" | "deleted"): number {
  return runs.reduce((total, run) => total + (run[name] ?? 0), 0);
}

const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 4 });

export function short(value: number): string {
  return SHORT.format(value);
}

function wholeTick(value: number): string {
  return Number.isInteger(value) ? count(value) : "";
}
