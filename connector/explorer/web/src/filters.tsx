// The conditions that rows must meet, one line each.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Reach } from "./exports/reach";

type Condition = [string, string, string];

const OPERATORS = ["=", "is", "!=", "<", "<=", ">", ">=", "starts_with", "contains", "is_null", "is_not_null"];

export function conditionsOf(where: string): Condition[] {
  try {
    const found = JSON.parse(where || "[]") as Condition[];
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

export function Filters(props: { where: string; columns: string[]; asked?: Record<string, string>; go: (where: string) => void }) {
  const [lines, setLines] = useState<Condition[]>(conditionsOf(props.where));
  const shown = useRef(props.where);
  useEffect(() => {
    if (shown.current !== props.where) setLines(conditionsOf(props.where)); // not at first: a line may have been added
    shown.current = props.where;
  }, [props.where]);
  const change = (at: number, part: number, text: string) =>
    setLines(lines.map((line, number) => (number === at ? (line.map((each, index) => (index === part ? text : each)) as Condition) : line)));
  const form = useRef<HTMLFormElement>(null);
  const [isAdded, setAdded] = useState(false);
  useLayoutEffect(() => { // at once, for those who type fast
    if (isAdded) form.current?.querySelector<HTMLElement>("fieldset:last-of-type select")?.focus();
    setAdded(false);
  }, [isAdded]);
  function add(): void {
    setLines([...lines, [firstOf(props.columns), "=", ""]]);
    setAdded(true);
  }
  function apply(next: Condition[]): void {
    const kept = next.filter(([column]) => column).map((line) => (line[1].endsWith("null") ? line.slice(0, 2) : line));
    props.go(kept.length ? JSON.stringify(kept) : "");
  }
  return (
    <form ref={form} class="filters" onSubmit={(event) => { event.preventDefault(); apply(lines); }}>
      {lines.map(([column, operator, value], at) => (
        <fieldset key={at}>
          <legend class="unseen">condition {at + 1}</legend>
          <select aria-label="column" value={column} onChange={(event) => change(at, 0, event.currentTarget.value)}>
            {props.columns.map((each) => <option key={each}>{each}</option>)}
            {!props.columns.includes(column) && <option>{column}</option>}
          </select>
          <select aria-label="operator" value={operator} onChange={(event) => change(at, 1, event.currentTarget.value)}>
            {OPERATORS.map((each) => <option key={each} value={each}>{each.replaceAll("_", " ")}</option>)}
          </select>
          {!operator.endsWith("null") && (
            <input aria-label="value" value={value ?? ""} onInput={(event) => change(at, 2, event.currentTarget.value)} />
          )}
          <button type="button" aria-label={`remove condition ${at + 1}`}
            onClick={() => apply(lines.filter((_, number) => number !== at))}>✕</button>
        </fieldset>
      ))}
      <button type="button" onClick={add}>Add a filter</button>
      {lines.length > 0 && <button>Apply</button>}
      {props.asked && <Reach asked={props.asked} />}
    </form>
  );
}

/** Returns the first column, or in place of a struct the first of its fields. */
function firstOf(columns: string[]): string {
  return columns.find((each, at) => !columns[at + 1]?.startsWith(`${each}.`)) ?? "";
}
