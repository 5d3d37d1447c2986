// A question that takes more than a moment: for how long it has been asked, and a way to give it up.

import { useEffect, useState } from "preact/hooks";
import { askJson } from "../asking";
import { count } from "../texts";

const PATIENCE = 300; // milliseconds

interface Progress {
  rows: number | null; // of the answer so far
  looked: number | null;
  of: number | null; // rows that are looked at in all; null where that is not known
}

export function Waiting(props: { since: number; doing: string; ask?: string; cancel?: () => void }) {
  const [known, setKnown] = useState<Progress>({ rows: null, looked: null, of: null });
  const [now, setNow] = useState(props.since);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), PATIENCE);
    return () => clearInterval(timer);
  }, [props.since]);
  const waited = now - props.since;
  useEffect(() => {
    if (!props.ask || waited < PATIENCE) return;
    const stop = new AbortController();
    askJson<Progress>("progress", { ask: props.ask }, stop.signal).then(setKnown, () => undefined);
    return () => stop.abort();
  }, [now]);
  if (waited < PATIENCE) return null;
  const { rows, looked, of } = known;
  const hasShare = looked !== null && of !== null && of > 0;
  return (
    <span class="waiting">
      <span class="quiet">
        {props.doing}… {Math.floor(waited / 1000)} s
        {hasShare ? `, ${count(looked)} of ${count(of)} rows looked at` : rows !== null && `, ${count(rows)} rows so far`}
      </span>
      {hasShare && <progress value={looked} max={of} aria-label="share of the rows that were looked at" />}
      {props.cancel && <button type="button" onClick={props.cancel}>Cancel</button>}
    </span>
  );
}
