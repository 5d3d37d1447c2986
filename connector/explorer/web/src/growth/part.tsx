// A part of the page that is read when somebody asks for it, with a way to stop the read. What was read stays when
// another moment is shown, and says then of what it is.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

interface Props<Found> {
  label: string; // of the button
  cost: string; // what is read
  of: string; // what the answer depends on, in words
  isReadAtOnce?: boolean;
  ask: (signal: AbortSignal) => Promise<Found>;
  children: (found: Found) => ComponentChildren;
}

export function Part<Found>(props: Props<Found>) {
  const [found, setFound] = useState<Found | null>(null);
  const [error, setError] = useState("");
  const [isRead, setRead] = useState(false);
  const [readOf, setReadOf] = useState(props.of);
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
    setReadOf(props.of);
    setRead(true);
    props.ask(mine.signal).then(
      (answer) => { if (!mine.signal.aborted) { setRead(false); setFound(answer); } },
      (reason: Error) => { if (!mine.signal.aborted) { setRead(false); setError(reason.message); } },
    );
  }
  useEffect(() => {
    if (props.isReadAtOnce) read();
    return end;
  }, []);
  return (
    <>
      {!props.isReadAtOnce && (
        <div class="read">
          {isRead ? <button onClick={end}>Stop</button> : <button onClick={read}>{props.label}</button>}
          <p class="quiet">{props.cost}</p>
        </div>
      )}
      {isRead && <p class="quiet" role="status">Reading…</p>}
      {found !== null && readOf !== props.of && (
        <div class="read">
          <p role="status"><span class="mark">!</span> This is {readOf}, not {props.of}.</p>
          <button onClick={read}>Read again</button>
        </div>
      )}
      {error && <p class="error" role="alert">{error}</p>}
      {found !== null && props.children(found)}
    </>
  );
}

export function momentOf(asked: Record<string, string>): string {
  return `of version ${asked.version}${asked.as_of ? ` at state time ${asked.as_of}` : ""}`;
}
