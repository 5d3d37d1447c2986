// The operators of a job, each with the states that it keeps.

import "./operators.css";

import type { TableFacts } from "../overview";
import { bytes, count } from "../texts";

export function Operators(props: { tables: TableFacts[]; open: (table: string) => void }) {
  const names = [...new Set(props.tables.map((each) => each.operator).filter((each) => each !== null))] as string[];
  if (names.length < 2 && props.tables.length < 2) return null;
  if (names.length === 0) return null;
  const rest = props.tables.filter((each) => each.operator === null);
  names.sort((one, two) => one.localeCompare(two, "en", { numeric: true }));
  return (
    <details class="operators">
      <summary>Operators</summary>
      <p class="quiet">
        {count(names.length)} {names.length === 1 ? "operator keeps" : "operators keep"} these states. How operators are
        connected is not recorded in the files, so the order here means nothing.
      </p>
      <ul class="boxes">
        {names.map((name) => (
          <li key={name}>
            <strong>{name}</strong>
            <ul>
              {props.tables.filter((each) => each.operator === name).map((each) => (
                <li key={each.store}>
                  <button onClick={() => props.open(each.store)}>{each.store}</button>
                  <span class="quiet">
                    {[each.kind !== null && !name.startsWith(each.kind) ? each.kind : "", each.keys === null ? "" : `${count(each.keys)} rows`, bytes(each.bytes)]
                      .filter(Boolean).join(" · ")}
                  </span>
                </li>
              ))}
            </ul>
          </li>
        ))}
        {rest.length > 0 && <li><strong>Operator not recorded</strong><ul>{rest.map((each) => <li key={each.store}><button onClick={() => props.open(each.store)}>{each.store}</button></li>)}</ul></li>}
      </ul>
    </details>
  );
}
