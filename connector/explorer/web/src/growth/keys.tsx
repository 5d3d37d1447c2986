// The busiest and the biggest keys, each with its number, its share and a way to its life.

import type { Table } from "apache-arrow";
import { askRows } from "../asking";
import { type Column, cellsOf, columnsOf } from "../grid";
import { bytes, count } from "../texts";
import { Part, momentOf } from "./part";

export type Opened = (row: Record<string, string | null>, columns: Column[]) => void;

const NUMBER = "__number";

const MEANING: Record<string, string> = {
  stored: "Bytes are those of key and value as they are stored.",
  shown: "Bytes are the lengths of texts and binary, and 8 for each other cell, of the key and its values, at every depth and of all rows of the key. The files take less or more, because they are encoded and compressed.",
};

export function BusyAndBig(props: { asked: Record<string, string>; newest: number; opened: Opened }) {
  const { place, table } = props.asked;
  return (
    <section aria-label="busiest and biggest keys">
      <h2>Keys</h2>
      <div class="two">
        <div>
          <h3>Busiest keys</h3>
          <Part<Table> label="Find the busiest keys" cost="Reads the keys of the whole history." of={`up to version ${props.newest}`}
            ask={(signal, ask) => askRows("growth/busiest", { place, table, ask }, signal)}>
            {(found) => <Keys found={found} opened={props.opened} name="versions" text={count} of="versions in the kept history" />}
          </Part>
        </div>
        <div>
          <h3>Biggest keys</h3>
          <Part<Table> label="Find the biggest keys" cost="Reads all rows of the moment shown." of={momentOf(props.asked)}
            ask={(signal, ask) => askRows("growth/biggest", { ...props.asked, ask }, signal)}>
            {(found) => (
              <>
                <Keys found={found} opened={props.opened} name="bytes" text={bytes} of="of all keys at the moment shown" />
                <p class="quiet">{MEANING[found.schema.metadata.get("bytes") ?? ""]}</p>
              </>
            )}
          </Part>
        </div>
      </div>
    </section>
  );
}

function Keys(props: { found: Table; opened: Opened; name: string; text: (value: number) => string; of: string }) {
  const { found, text } = props;
  const columns = columnsOf(found).filter((each) => each.name !== NUMBER);
  const cells = cellsOf(found);
  const numbers = cells.map((_, row) => found.getChild(NUMBER)?.get(row) as number);
  const total = Number(found.schema.metadata.get("total"));
  const passes = Number(found.schema.metadata.get("passes"));
  if (cells.length === 0) return <p role="status">There are no keys.</p>;
  return (
    <>
      <p class="quiet" role="status">
        {text(total)} {props.of}. {numbers.length > 1 && numbers[0] === numbers[numbers.length - 1] && "These keys have equal numbers, so others may have the same. "}{passes > 1 && `There were too many keys for one pass, so the rows were read ${passes} times; the numbers are exact.`}
      </p>
      <div class="scrolled" tabIndex={0} role="region" aria-label={`keys with the most ${props.name}`}>
        <table class="facts">
          <thead><tr><th scope="col">Key</th><th scope="col" class="number">{props.name}</th><th scope="col" class="number">share</th></tr></thead>
          <tbody>
            {cells.map((row, number) => {
              const name = columns.map((_, at) => row[at] ?? "null").join(", ");
              return (
                <tr key={number}>
                  <td>
                    <button class="link" title="show the life of this key"
                      onClick={() => props.opened(Object.fromEntries(columns.map((column, at) => [column.name, row[at]])), columns)}>
                      {name === "" ? "empty text" : name}
                    </button>
                  </td>
                  <td class="number">{text(numbers[number])}</td>
                  <td class="number">{total ? `${((100 * numbers[number]) / total).toPrecision(2)} %` : ""}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </>
  );
}
