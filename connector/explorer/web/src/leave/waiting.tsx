// A question that takes more than a moment: for how long it has been asked, and a way to give it up.

import { useEffect, useState } from "preact/hooks";
import { askJson } from "../asking";
import { count } from "../texts";

const PATIENCE = 300; // milliseconds

export function Waiting(props: { since: number; doing: string; ask?: string; cancel: () => void }) {
  const [rows, setRows] = useState<number | null>(null);
  const [now, setNow] = useState(props.since);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), PATIENCE);
    return () => clearInterval(timer);
  }, [props.since]);
  const waited = now - props.since;
  useEffect(() => {
    if (!props.ask || waited < PATIENCE) return;
    const stop = new AbortController();
    askJson<{ rows: number | null }>("progress", { ask: props.ask }, stop.signal).then((found) => setRows(found.rows), () => undefined);
    return () => stop.abort();
  }, [now]);
  if (waited < PATIENCE) return null;
  return (
    <span class="waiting">
      <span class="quiet">{props.doing}… {Math.floor(waited / 1000)} s{rows !== null && `, ${count(rows)} rows so far`}</span>
      <button type="button" onClick={props.cancel}>Cancel</button>
    </span>
  );
}
