// What is shown, to take along: as a program to copy, and as a file to download.

import "./exports.css";

import { useEffect, useRef, useState } from "preact/hooks";
import { askJson } from "../asking";
import { count } from "../texts";
import { type View, pointOf } from "../view";
import { Waiting } from "./waiting";

type Asked = Record<string, string>;
type Copies = Record<string, { text?: string; why?: string }>;

const LANGUAGES: [string, string][] = [["python", "Python"], ["sql", "SQL of DuckDB"], ["spark", "Spark"], ["cli", "Command line"]];
const FORMS: [string, string][] = [["parquet", "Parquet"], ["csv", "CSV"], ["arrow", "Arrow"]];

// The parameters of what is shown; null where nothing is, or nothing that the table alone answers.
export function shownBy(view: View, first: number, version: number): Asked | null {
  if (view.tab === "state") return { kind: "state", ...pointOf(view), where: view.where, sort: view.sort };
  if (view.tab === "life") {
    if (!view.key && !view.at) return null;
    return { kind: "life", place: view.place, table: view.table, key: view.key, where: view.key ? "" : view.at };
  }
  if (view.tab === "compare") {
    return {
      kind: "compare", place: view.place, table: view.table, where: view.where,
      from_version: view.from || String(Math.max(first, version - 1)), from_as_of: view.from_as_of,
      to_version: String(version), to_as_of: view.as_of,
    };
  }
  return null;
}

export function Leave(props: { view: View; first: number; version: number }) {
  const asked = shownBy(props.view, props.first, props.version);
  if (asked === null) return null;
  return (
    <div class="leave">
      <CopyAs asked={asked} />
      <Export asked={asked} />
    </div>
  );
}

function CopyAs(props: { asked: Asked }) {
  const [isOpen, setOpen] = useState(false);
  const [copies, setCopies] = useState<Copies | null>(null);
  const [error, setError] = useState("");
  const question = JSON.stringify(props.asked);
  useEffect(() => {
    setCopies(null);
    setError("");
    if (!isOpen) return;
    const stop = new AbortController();
    askJson<Copies>("copies", props.asked, stop.signal).then(setCopies, (reason: Error) => {
      if (!stop.signal.aborted) setError(reason.message);
    });
    return () => stop.abort();
  }, [question, isOpen]);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Copy as…</summary>
      {error && <p class="error" role="alert">{error}</p>}
      {copies && (
        <div class="ways" role="group" aria-label="what is shown, as a program">
          {LANGUAGES.map(([name, title]) => <Way key={name} title={title} text={copies[name].text} why={copies[name].why} />)}
        </div>
      )}
    </details>
  );
}

export function Way(props: { title: string; text?: string; why?: string }) {
  const shown = useRef<HTMLTextAreaElement>(null);
  const [said, setSaid] = useState("");
  useEffect(() => setSaid(""), [props.text]);
  async function copy(): Promise<void> {
    try {
      await navigator.clipboard.writeText(props.text ?? "");
      setSaid("Copied.");
    } catch { // a frame of another page may not write to the clipboard
      shown.current?.focus();
      shown.current?.select();
      setSaid("The browser does not let this page copy. The text is selected; copy it with Ctrl+C or ⌘ C.");
    }
  }
  return (
    <section class="way" aria-label={props.title}>
      <h3>{props.title}</h3>
      {props.text === undefined ? <p class="quiet">{props.why}</p> : (
        <>
          <textarea ref={shown} readOnly spellcheck={false} aria-label={`${props.title}, to copy`} value={props.text}
            rows={Math.min(10, props.text.trimEnd().split("\n").length)} />
          <button aria-label={`Copy ${props.title}`} onClick={copy}>Copy</button>
        </>
      )}
      <span aria-live="polite" class="quiet">{said}</span>
    </section>
  );
}

interface Exported {
  ticket: string;
  name: string;
  rows: number;
}

function Export(props: { asked: Asked }) {
  const [since, setSince] = useState<number | null>(null);
  const [ask, setAsk] = useState("");
  const [said, setSaid] = useState("");
  const [error, setError] = useState("");
  const stopped = useRef(new AbortController());
  const question = JSON.stringify(props.asked);
  useEffect(() => {
    setSaid("");
    setError("");
    return () => { stopped.current.abort(); setSince(null); };
  }, [question]);
  function write(form: string): void {
    stopped.current.abort();
    stopped.current = new AbortController();
    const { signal } = stopped.current;
    const name = `${Date.now()}-${Math.random()}`;
    setSince(Date.now());
    setAsk(name);
    setSaid("");
    setError("");
    askJson<Exported>("export", { ...props.asked, form, ask: name }, signal).then(
      (found) => {
        if (signal.aborted) return;
        setSince(null);
        // The address is good for one download and needs no token, which a link cannot send.
        const link = document.createElement("a");
        link.href = `/download/${found.ticket}`;
        link.download = found.name;
        link.click();
        setSaid(`${found.name}: ${count(found.rows)} ${found.rows === 1 ? "row" : "rows"}.`);
      },
      (reason: Error) => { if (!signal.aborted) { setSince(null); setError(reason.message); } },
    );
  }
  function cancel(): void {
    stopped.current.abort();
    setSince(null);
    setSaid("Cancelled.");
  }
  return (
    <details>
      <summary>Export…</summary>
      <div class="forms">
        {FORMS.map(([form, title]) => <button key={form} aria-disabled={since !== null} onClick={() => { if (since === null) write(form); }}>{title}</button>)}
        {since !== null && <Waiting since={since} doing="Writing" ask={ask} cancel={cancel} />}
        <p aria-live="polite" class="quiet">{said}</p>
        {error && <p class="error" role="alert">{error}</p>}
      </div>
    </details>
  );
}
