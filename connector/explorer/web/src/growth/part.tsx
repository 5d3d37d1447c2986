// A part of the page that is read when somebody asks for it, with a way to stop the read. What was read stays when
// another moment is shown, and says then of what it is.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Waiting } from "../exports/waiting";

interface Props<Found> {
  label: string; // of the button
  cost: string; // what is read
  of: string; // what the answer depends on, in words
  isReadAtOnce?: boolean;
  ask: (signal: AbortSignal, name: string) => Promise<Found>; // the name is the one by which its progress is asked for
  children: (found: Found) => ComponentChildren;
}

export function Part<Found>(props: Props<Found>) {
  const [found, setFound] = useState<Found | null>(null);
  const [error, setError] = useState("");
  const [read, setRead] = useState<{ since: number; name: string } | null>(null);
  const [readOf, setReadOf] = useState(props.of);
  const stop = useRef<AbortController | null>(null);
  function end(): void {
    stop.current?.abort();
    stop.current = null;
    setRead(null);
  }
  function begin(): void {
    end();
    const mine = new AbortController();
    stop.current = mine;
    setError("");
    setFound(null);
    setReadOf(props.of);
    const name = `${Date.now()}-${Math.random()}`;
    setRead({ since: Date.now(), name });
    props.ask(mine.signal, name).then(
      (answer) => { if (!mine.signal.aborted) { setRead(null); setFound(answer); } },
      (reason: Error) => { if (!mine.signal.aborted) { setRead(null); setError(reason.message); } },
    );
  }
  useEffect(() => {
    if (props.isReadAtOnce) begin();
    return end;
  }, []);
  return (
    <>
      {!props.isReadAtOnce && (
        <div class="read">
          {read ? <button onClick={end}>Stop</button> : <button onClick={begin}>{props.label}</button>}
          <p class="quiet">{props.cost}</p>
        </div>
      )}
      {read && <p class="unseen" role="status">Reading…</p>}
      {read && <Waiting since={read.since} doing="Reading" ask={read.name} />}
      {found !== null && readOf !== props.of && (
        <div class="read">
          <p role="status"><span class="mark">!</span> This is {readOf}, not {props.of}.</p>
          <button onClick={begin}>Read again</button>
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
