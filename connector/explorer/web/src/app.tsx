// The page: the overview, or one table with its scrubber and what is asked of it.

import "./app.css";

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { askJson, askRows, keepToken } from "./asking";
import { Compare } from "./compare";
import { conditionsOfKey } from "./conditions";
import type { PlaceFacts, TableFacts } from "./facts";
import { Filters } from "./filters";
import { keepFocus } from "./focus";
import { useNews } from "./follow/follow";
import { type Column, Grid } from "./grid";
import { Growth } from "./growth/growth";
import { Leave } from "./exports/exports";
import { KeyLife } from "./life/life";
import { Notices } from "./notices";
import { Overview, usePlaces } from "./overview";
import { type Axis, Scrubber } from "./scrubber";
import { AskPlace, AskTable } from "./sql/ask";
import { count } from "./texts";
import { EMPTY, type View, addressOf, pointOf, viewOfAddress } from "./view";

const TABS: [View["tab"], string][] = [["state", "State"], ["life", "Life of a key"], ["compare", "Compare"], ["growth", "Growth"], ["sql", "SQL"]];

const MOST_ORDERED = 50_000;

function Page() {
  const [view, setView] = useState<View>(viewOfAddress());
  // A table is shown before all that is beside it is known, which may take much longer than its rows.
  const [hasAsked, setAsked] = useState(false);
  const { places, error, look, following } = usePlaces(!view.table && view.tab !== "sql", !view.table || hasAsked);
  const alone = useTable(view, places);
  useEffect(() => {
    const back = () => setView(viewOfAddress());
    addEventListener("popstate", back);
    return () => removeEventListener("popstate", back);
  }, []);
  function go(change: Partial<View>, quietly = false): void {
    setView((old) => {
      const next = { ...old, ...change };
      if (quietly) history.replaceState(null, "", addressOf(next));
      else history.pushState(null, "", addressOf(next));
      return next;
    });
  }
  function again(): void {
    if (places || !view.table) look();
    else alone.look();
  }
  const home = () => go({ ...EMPTY });
  const place = places?.find((each) => String(each.place) === view.place);
  const table = place ? place.tables.find((each) => each.store === view.table) : alone.table;
  const problem = view.table && !places ? alone.error : error;
  const isRead = places !== null || (view.table !== "" && alone.isRead);
  useEffect(() => { document.title = view.table ? `${view.table} · statestore explorer` : "statestore explorer"; }, [view.table]);
  return (
    <>
      <header class="top">
        <button class="brand" onClick={home}><img src="/static/icon.svg" alt="" width={22} height={22} /> statestore explorer</button>
        {view.table && <span class="crumb" title={place?.path}>{view.table}</span>}
      </header>
      {problem && <main><p class="error" role="alert">{problem}</p><button onClick={again}>Try again</button></main>}
      {!isRead && !problem && <main><p class="quiet" role="status">Reading…</p></main>}
      {places && !view.table && view.tab === "sql" && <AskPlace places={places} view={view} go={go} />}
      {places && !view.table && view.tab !== "sql" && (
        <Overview places={places} open={(number, name) => go({ place: String(number), table: name })}
          ask={(number) => go({ place: String(number), tab: "sql" })} look={look} following={following} />
      )}
      {isRead && view.table && !table && !problem && (
        <main>
          <p class="error" role="alert">{place?.error ?? `There is no table ${view.table} here; go back to the overview.`}</p>
          <button onClick={again}>Try again</button>
        </main>
      )}
      {table && (
        <TableView key={`${view.place} ${view.table}`} table={table} tables={place?.tables ?? []} view={view} go={go}
          askTables={() => setAsked(true)} />
      )}
    </>
  );
}

// What is known of the table of the address, as long as nothing is known of all tables.
function useTable(view: View, places: PlaceFacts[] | null): { table: TableFacts | undefined; isRead: boolean; error: string; look: () => void } {
  const name = places === null ? view.table : "";
  const question = `${view.place} ${name}`;
  const [found, setFound] = useState<{ question: string; table: TableFacts | undefined; error: string } | null>(null);
  const [looks, setLooks] = useState(0);
  useEffect(() => {
    setFound(null);
    if (!name) return;
    const stop = new AbortController();
    askJson<TableFacts[]>("tables", { place: view.place, names: JSON.stringify([name]) }, stop.signal).then(
      ([table]) => setFound({ question, table, error: "" }),
      (reason: Error) => { if (!stop.signal.aborted) setFound({ question, table: undefined, error: reason.message }); },
    );
    return () => stop.abort();
  }, [question, looks]);
  const mine = found?.question === question ? found : null;
  return { table: mine?.table, isRead: mine !== null, error: mine?.error ?? "", look: () => setLooks((old) => old + 1) };
}

interface TableProps {
  table: TableFacts;
  tables: TableFacts[]; // all of its place, once they are asked for
  askTables: () => void;
  view: View;
  go: (change: Partial<View>, quietly?: boolean) => void;
}

function TableView(props: TableProps) {
  const { table, view, go } = props;
  const [axis, setAxis] = useState<Axis | null>(null);
  const [error, setError] = useState("");
  const [known, setKnown] = useState(view.as_of);
  const [attempt, setAttempt] = useState(0);
  const following = useNews(view.place, view.table);
  const { news } = following;
  const isStale = news !== null && axis !== null && (news.first !== axis.first || news.last !== axis.last);
  useEffect(() => {
    if (axis !== null && !isStale && attempt === 0) return;
    const stop = new AbortController();
    setError("");
    askRows("versions", { place: view.place, table: view.table }, stop.signal).then(
      (found) => {
        const list = (name: string) => Array.from({ length: found.numRows }, (_, row) => found.getChild(name)?.get(row) as number | null);
        setAxis({
          first: Number(found.schema.metadata.get("first")), last: Number(found.schema.metadata.get("last")),
          versions: list("version") as number[], times: list("time"), changes: list("changes"), commits: list("commits") as number[],
          missing: list("missing") as number[],
        });
      },
      (reason: Error) => { if (!stop.signal.aborted) setError(reason.message); },
    );
    return () => stop.abort();
  }, [view.place, view.table, news, attempt]);
  useEffect(() => setKnown(view.as_of), [view.as_of]);
  const keys = Object.keys(table.key ?? {});
  // A question about the newest version is one about the newest that is named here, until the axis has a newer one.
  const seen: Record<string, string> = view.version === "" && axis !== null ? { seen: String(axis.last) } : {};
  // A small state comes in the order of its key, so that rows stay where they are while one scrubs.
  const isOrdered = keys.length > 0 && !/^(struct|array|map|binary)/.test(table.key?.[keys[0]] ?? "");
  const usual = isOrdered && table.keys !== null && table.keys <= MOST_ORDERED ? keys[0] : "";
  const version = axis === null ? 0 : view.version === "" ? axis.last : Number(view.version);
  function opened(row: Record<string, string | null>, columns: Column[]): void {
    go({ tab: "life", key: "", at: conditionsOfKey(keys, columns, columns.map((each) => row[each.name])) });
  }
  return (
    <main class="table">
      <div class="title">
        <h1>{table.store}</h1>
        <p class="quiet">{table.kind}{table.health.length > 0 && ` · ⚠ ${table.health.join("; ")}`}</p>
      </div>
      <Notices of={JSON.stringify([view.place, view.table, view.tab, view.version, view.as_of])} />
      {error && <p class="error" role="alert">{error} <button onClick={() => setAttempt(attempt + 1)}>Try again</button></p>}
      {!error && following.problem && <p class="error" role="alert">What is shown cannot be followed: {following.problem}</p>}
      {following.isReplaced && (
        <p class="error" role="alert">
          The table was replaced by another one of this name. <button onClick={() => location.reload()}>Show the new one</button>
        </p>
      )}
      {axis && (version < axis.first || version > axis.last) && <Unreadable version={version} axis={axis} go={go} />}
      {axis && axis.versions.length > 0 && (
        <Scrubber axis={axis} version={version} isNewest={view.version === ""} isFollowed={following.isOn} follow={following.turn}
          place={view.place} table={view.table}
          jump={(wanted, as_of) => go({ version: wanted === axis.last ? "" : String(wanted), ...(as_of && { as_of }) })}
          go={(wanted) => go({ version: wanted === null || wanted === axis.last ? "" : String(wanted) }, true)} />
      )}
      <nav class="tabs" aria-label="views">
        {TABS.map(([tab, text]) => (
          <button key={tab} aria-current={view.tab === tab ? "page" : undefined} onClick={() => go({ tab })}>{text}</button>
        ))}
        <form class="known" onSubmit={(event) => { event.preventDefault(); go({ as_of: known }); }}>
          <label><span>State time</span>
            <input value={known} placeholder="the newest" onInput={(event) => setKnown(event.currentTarget.value)} />
          </label>
          <button>Set</button>
        </form>
      </nav>
      {axis && <Leave view={view} first={axis.first} version={version} />}
      {view.tab === "state" && (
        <>
          <Filters where={view.where} columns={table.fields} asked={{ ...pointOf(view), where: view.where, ...seen }} go={(where) => go({ where })} />
          <Grid asked={{ ...pointOf(view), where: view.where, ...seen }} sort={view.sort || usual} keys={keys}
            onSort={(sort, quietly) => go({ sort }, quietly)} onOpen={opened} isEditable={table.editable && !view.as_of} />
        </>
      )}
      {view.tab === "life" && axis && <KeyLife view={view} table={table} tables={props.tables} askTables={props.askTables} keys={keys} newest={axis.last} go={go} />}
      {view.tab === "compare" && axis && <Compare view={view} columns={table.fields} first={axis.first} version={version} go={go} />}
      {view.tab === "growth" && axis && <Growth view={view} version={version} newest={axis.last} columns={table.columns} opened={opened} />}
      {view.tab === "sql" && axis && <AskTable table={table} version={version} view={view} go={go} />}
    </main>
  );
}

// The version of the address is not kept: it was removed while somebody looked at it, or it was never there.
function Unreadable(props: { version: number; axis: Axis; go: (change: Partial<View>) => void }) {
  const { version, axis } = props;
  const isRemoved = version < axis.first;
  const kept = axis.first === axis.last ? `only version ${count(axis.last)} can be read` : `versions ${count(axis.first)} to ${count(axis.last)} can be read`;
  return (
    <p class="error" role="alert">
      {isRemoved ? `Version ${count(version)} can no longer be read: ${kept}. What is still shown of it was read before.` : `There is no version ${count(version)}: ${kept}.`}{" "}
      <button onClick={() => props.go({ version: String(axis.first) })}>Show version {count(axis.first)}, the oldest</button>{" "}
      <button onClick={() => props.go({ version: "" })}>Show the newest</button>
    </p>
  );
}

keepToken();
keepFocus();
render(<Page />, document.getElementById("app") as HTMLElement);
