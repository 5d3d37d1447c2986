// A part of the page that is read when somebody asks for it, with a way to stop the read.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

interface Props<Found> {
  label: string; // of the button
  cost: string; // what is read
  asked: string; // what the answer depends on; another one makes the answer go
  isReadAtOnce?: boolean;
  ask: (signal: AbortSignal) => Promise<Found>;
  children: (found: Found) => ComponentChildren;
}

export function Part<Found>(props: Props<Found>) {
  const [found, setFound] = useState<Found | null>(null);
  const [error, setError] = useState("");
  const [isRead, setRead] = useState(false);
  const stop = useRef<AbortController | null>(null);
  function end(): void {
    stop.current?.abort();
    stop.current = null;
    setRead(false);
  }
  function read(): void {
    end();
    const mine = new AbortController();
    stop.current = mine;
    setError("");
    setFound(null);
    setRead(true);
    props.ask(mine.signal).then(
      (answer) => { if (!mine.signal.aborted) { setRead(false); setFound(answer); } },
      (reason: Error) => { if (!mine.signal.aborted) { setRead(false); setError(reason.message); } },
    );
  }
  useEffect(() => {
    setFound(null);
    setError("");
    if (props.isReadAtOnce) read();
    return end;
  }, [props.asked]);
  return (
    <>
      {!props.isReadAtOnce && (
        <div class="read">
          {isRead ? <button onClick={end}>Stop</button> : <button onClick={read}>{props.label}</button>}
          <p class="quiet">{props.cost}</p>
        </div>
      )}
      {isRead && <p class="quiet" role="status">Reading…</p>}
      {error && <p class="error" role="alert">{error}</p>}
      {found !== null && props.children(found)}
    </>
  );
}
