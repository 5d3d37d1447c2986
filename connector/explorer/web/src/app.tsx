// The page: the overview, or one table with its scrubber and what is asked of it.

import "./app.css";

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { askRows, hearNotices, keepToken } from "./asking";
import { Compare } from "./compare";
import { conditionsOfKey } from "./conditions";
import { Filters } from "./filters";
import { keepFocus } from "./focus";
import { useNews } from "./follow/follow";
import { type Column, Grid } from "./grid";
import { Growth } from "./growth/growth";
import { Leave } from "./leave/leave";
import { KeyLife } from "./life/life";
import { Overview, type TableFacts, usePlaces } from "./overview";
import { type Axis, Scrubber } from "./scrubber";
import { AskPlace, AskTable } from "./sql/ask";
import { count } from "./texts";
import { EMPTY, type View, addressOf, pointOf, viewOfAddress } from "./view";

const TABS: [View["tab"], string][] = [["state", "State"], ["life", "Life of a key"], ["compare", "Compare"], ["growth", "Growth"], ["sql", "SQL"]];

const MOST_ORDERED = 50_000;

function Page() {
  const [view, setView] = useState<View>(viewOfAddress());
  const { places, error, look, following } = usePlaces(!view.table && view.tab !== "sql");
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
  const home = () => go({ ...EMPTY });
  const place = places?.find((each) => String(each.place) === view.place);
  const table = place?.tables.find((each) => each.store === view.table);
  useEffect(() => { document.title = view.table ? `${view.table} · statestore explorer` : "statestore explorer"; }, [view.table]);
  return (
    <>
      <header class="top">
        <button class="brand" onClick={home}><img src="/static/icon.svg" alt="" width={22} height={22} /> statestore explorer</button>
        {view.table && <span class="crumb" title={place?.path}>{view.table}</span>}
      </header>
      {error && <main><p class="error" role="alert">{error}</p><button onClick={look}>Try again</button></main>}
      {!places && !error && <main><p class="quiet" role="status">Reading…</p></main>}
      {places && !view.table && view.tab === "sql" && <AskPlace places={places} view={view} go={go} />}
      {places && !view.table && view.tab !== "sql" && (
        <Overview places={places} open={(number, name) => go({ place: String(number), table: name })}
          ask={(number) => go({ place: String(number), tab: "sql" })} look={look} following={following} />
      )}
      {places && view.table && !table && (
        <main>
          <p class="error" role="alert">{place?.error ?? `There is no table ${view.table} here; go back to the overview.`}</p>
          <button onClick={look}>Try again</button>
        </main>
      )}
      {table && <TableView key={`${view.place} ${view.table}`} table={table} tables={place?.tables ?? []} view={view} go={go} />}
    </>
  );
}

function TableView(props: { table: TableFacts; tables: TableFacts[]; view: View; go: (change: Partial<View>, quietly?: boolean) => void }) {
  const { table, view, go } = props;
  const [axis, setAxis] = useState<Axis | null>(null);
  const [error, setError] = useState("");
  const [known, setKnown] = useState(view.as_of);
  const [attempt, setAttempt] = useState(0);
  const [notices, setNotices] = useState<string[]>([]);
  useEffect(() => {
    hearNotices((texts) => setNotices((old) => [...new Set([...old, ...texts])]));
    return () => hearNotices(() => undefined);
  }, []);
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
      {notices.map((text) => <p class="error" role="status" key={text}>{text}</p>)}
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
            onSort={(sort) => go({ sort })} onOpen={opened} />
        </>
      )}
      {view.tab === "life" && axis && <KeyLife view={view} table={table} tables={props.tables} keys={keys} newest={axis.last} go={go} />}
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
