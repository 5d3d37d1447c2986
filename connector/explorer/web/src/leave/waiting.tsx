// A question that takes more than a moment: for how long it has been asked, and a way to give it up.

import { useEffect, useState } from "preact/hooks";

const PATIENCE = 300; // milliseconds

export function Waiting(props: { since: number; doing: string; cancel: () => void }) {
  const [now, setNow] = useState(props.since);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), PATIENCE);
    return () => clearInterval(timer);
  }, [props.since]);
  const waited = now - props.since;
  if (waited < PATIENCE) return null;
  return (
    <span class="waiting">
      <span class="quiet">{props.doing}… {Math.floor(waited / 1000)} s</span>
      <button type="button" onClick={props.cancel}>Cancel</button>
    </span>
  );
}
