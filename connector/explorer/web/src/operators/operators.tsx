// The job of a place as a graph: what it reads, its operators, and the states that each keeps.

import "./operators.css";

import { useEffect, useState } from "preact/hooks";
import { askJson } from "../asking";
import type { TableFacts } from "../facts";
import { bytes, count } from "../texts";
import { type Edge, Lines } from "./lines";

interface Input {
  name: string;
  detail: string;
  parts: string[];
}

interface Job {
  name: string;
  unrecorded: string;
  words: [string, string]; // of a part, singular and plural
  inputs: Input[] | null;
  stateless: string[];
}

const UNKNOWN = "";
const MOST = 60; // inputs that are drawn

export function Operators(props: { place: number; tables: TableFacts[]; open: (table: string) => void }) {
  const [isOpen, setOpen] = useState(false);
  const [job, setJob] = useState<Job | null>(null);
  const [error, setError] = useState("");
  const parts = [...new Set(props.tables.map((each) => each.operator).filter((each) => each !== null))] as string[];
  useEffect(() => {
    if (!isOpen) return;
    const stop = new AbortController();
    setError("");
    askJson<Job | null>("job", { place: String(props.place) }, stop.signal).then(setJob, (reason: Error) => {
      if (!stop.signal.aborted) setError(reason.message);
    });
    return () => stop.abort();
  }, [isOpen, props.place, props.tables]);
  if (parts.length === 0) return null;
  parts.sort((one, two) => one.localeCompare(two, "en", { numeric: true }));
  return (
    <details class="operators" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Operators</summary>
      {error && <p class="error" role="alert">{error}</p>}
      {isOpen && !job && !error && <p class="quiet" role="status">Reading…</p>}
      {job && <Drawn job={job} parts={parts} {...props} />}
    </details>
  );
}

function Drawn(props: { job: Job; parts: string[]; tables: TableFacts[]; open: (table: string) => void }) {
  const { job, parts, tables } = props;
  const inputs = job.inputs ?? [];
  const shown = inputs.slice(0, MOST).map((each) => ({ ...each, at: each.parts.map((part) => parts.indexOf(part)).filter((at) => at >= 0) }));
  const rest = tables.filter((each) => each.operator === null);
  // What the whole job reads stands before it, and what a part has read stands before that part.
  const isOfWhole = shown.every((each) => each.parts.length === 0);
  const edges: Edge[] = [];
  for (const each of shown) {
    for (const end of isOfWhole ? ["job"] : each.at.map((at) => `part ${at}`)) edges.push({ from: `input ${each.name}`, to: end, isRead: true });
  }
  const groups = [...parts.map((name) => ({ name, mine: tables.filter((each) => each.operator === name) })), { name: UNKNOWN, mine: rest }];
  groups.forEach(({ name, mine }, at) => {
    if (name === UNKNOWN) return;
    edges.push({ from: "job", to: `part ${at}`, isRead: false });
    mine.forEach((each) => edges.push({ from: `part ${at}`, to: `state ${each.store}`, isRead: false }));
  });
  const read = (list: typeof shown, by: string) => list.length > 0 && (
    <ul class="inputs" aria-label={`read by ${by}`}>
      {list.map((each) => (
        <li key={each.name} class="node" data-node={`input ${each.name}`}>
          {each.name} {each.detail && <span class="quiet">{each.detail}</span>}
          {each.at.length > 1 && <span class="unseen">, read by {each.parts.join(" and ")}</span>}
        </li>
      ))}
    </ul>
  );
  const whole = <p class="node job" data-node="job"><strong>{job.name}</strong></p>;
  return (
    <>
      <p class="quiet">
        {count(parts.length)} {parts.length === 1 ? `${job.words[0]} keeps` : `${job.words[1]} keep`} these states.{" "}
        {(parts.length > 1 || job.stateless.length > 0 || !isOfWhole) && job.unrecorded}{" "}
        {job.inputs !== null && inputs.length === 0 && "What it reads is not recorded. "}
        {inputs.length > MOST && `The first ${MOST} of ${count(inputs.length)} inputs are shown. `}
      </p>
      <Lines edges={edges} kind={isOfWhole ? "of-whole" : "of-parts"}>
        {isOfWhole && read(shown, job.name)}
        {whole}
        <ul class="parts" aria-label={`${job.words[1]} of ${job.name}`}>
          {groups.filter(({ mine }) => mine.length > 0).map(({ name, mine }) => (
            <li key={name}>
              {!isOfWhole && read(shown.filter((each) => each.at[0] === parts.indexOf(name)), name)}
              {name === UNKNOWN
                ? <p class="part quiet">not recorded of which {job.words[0]}, or not readable</p>
                : <p class="node part" data-node={`part ${parts.indexOf(name)}`}><strong>{name}</strong></p>}
              <ul class="states" aria-label={name === UNKNOWN ? "other states" : `states of ${name}`}>
                {mine.map((each) => (
                  <li key={each.store} class="node" data-node={`state ${each.store}`}>
                    <button class="link" onClick={() => props.open(each.store)}>{each.store}</button>{" "}
                    <span class="quiet">
                      {[each.kind !== null && !name.startsWith(each.kind) ? each.kind : "", each.keys === null ? "" : `${count(each.keys)} rows`, bytes(each.bytes)]
                        .filter(Boolean).join(" · ")}
                    </span>
                  </li>
                ))}
              </ul>
            </li>
          ))}
        </ul>
      </Lines>
      {job.stateless.length > 0 && (
        <details>
          <summary>{count(job.stateless.length)} more {job.stateless.length === 1 ? job.words[0] : job.words[1]} without a table</summary>
          <ul class="stateless">{job.stateless.map((each, at) => <li key={at}>{each}</li>)}</ul>
        </details>
      )}
    </>
  );
}
