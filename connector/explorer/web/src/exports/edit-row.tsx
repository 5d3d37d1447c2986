// The row that is marked in the grid, as a command that edits it in a copy of the state.

import { useEffect, useState } from "preact/hooks";
import { askJson } from "../asking";
import { count } from "../texts";
import { Way } from "./exports";

type Command = { text?: string; why?: string };
interface Edits {
  cells: (string | null)[];
  update: Command;
  delete: Command;
  delete_key?: Command;
}

const COMMANDS: ["update" | "delete" | "delete_key", string][] = [
  ["update", "Change the row"], ["delete", "Delete the row"], ["delete_key", "Delete all rows of its key"],
];

export function EditRow(props: { asked: Record<string, string>; row: number; cells?: (string | null)[] }) {
  const [isOpen, setOpen] = useState(false);
  const [edits, setEdits] = useState<Edits | null>(null);
  const [error, setError] = useState("");
  const question = JSON.stringify([props.asked, props.row, props.cells]);
  useEffect(() => {
    setEdits(null);
    setError("");
    if (!isOpen || props.cells === undefined) return;
    const stop = new AbortController();
    askJson<Edits>("edits", { ...props.asked, row: String(props.row) }, stop.signal).then(
      (found) => {
        if (JSON.stringify(found.cells) === JSON.stringify(props.cells)) setEdits(found);
        else setError("The row is another one by now. Read the rows again.");
      },
      (reason: Error) => { if (!stop.signal.aborted) setError(reason.message); },
    );
    return () => stop.abort();
  }, [question, isOpen]);
  return (
    <div class="leave">
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>Copy row {count(props.row + 1)} as an edit…</summary>
        {error && <p class="error" role="alert">{error}</p>}
        {edits && (
          <div class="ways" role="group" aria-label="commands that edit the row">
            {COMMANDS.map(([name, title]) => {
              const found = edits[name];
              return found && <Way key={name} title={title} text={found.text} why={found.why} />;
            })}
          </div>
        )}
      </details>
    </div>
  );
}
