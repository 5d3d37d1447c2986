// The overview: every table of every place.

import { useEffect, useRef, useState } from "preact/hooks";
import { askJson } from "./asking";
import { Counted, type Counts, useCounts } from "./counted";
import type { PlaceFacts } from "./facts";
import { type FollowedPlaces, useMarks } from "./follow/marks";
import { Notices } from "./notices";
import { Operators } from "./operators/operators";
import { bytes, count } from "./texts";

export function usePlaces(isShown: boolean, isNeeded: boolean): { places: PlaceFacts[] | null; error: string; look: () => void; following: FollowedPlaces } {
  const [places, setPlaces] = useState<PlaceFacts[] | null>(null);
  const [error, setError] = useState("");
  const [looks, setLooks] = useState(0);
  const needed = useRef(false); // from the first time on
  needed.current ||= isNeeded;
  useEffect(() => {
    if (!needed.current) return;
    askJson<PlaceFacts[]>("overview", {}).then(
      (found) => { setError(""); setPlaces(found); },
      (reason: Error) => setError(reason.message),
    );
  }, [looks, needed.current]);
  const look = () => setLooks((old) => old + 1);
  const following = useMarks(places, isShown && error === "", setPlaces, look);
  return { places, error, look, following };
}

interface Ways {
  open: (place: number, table: string) => void;
  ask: (place: number) => void;
  look?: () => void;
  following?: FollowedPlaces;
}

export function Overview(props: { places: PlaceFacts[] } & Ways) {
  const [search, setSearch] = useState("");
  const counts = useCounts(props.places);
  const all = props.places.reduce((sum, place) => sum + place.tables.length, 0);
  return (
    <main class="overview">
      <h1>{count(all)} {all === 1 ? "state" : "states"} to look into</h1>
      <label class="search">
        <span>Find by name</span>
        <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
      </label>{" "}
      <button onClick={props.look}>Look again</button>{" "}
      {props.following && (
        <button onClick={() => props.following?.turn(!props.following.isOn)} aria-pressed={!props.following.isOn} title="look for newer versions, or not">
          {props.following.isOn ? "Stop following" : "Not followed"}
        </button>
      )}
      {props.following?.problem && <p class="error" role="alert">What is shown cannot be followed: {props.following.problem}</p>}
      <Notices of="the overview" />
      {props.places.map((place) => (
        <PlaceTables
          key={place.place} place={place} search={search.toLowerCase()} counts={counts} open={props.open} ask={props.ask}
        />
      ))}
    </main>
  );
}

function PlaceTables(props: { place: PlaceFacts; search: string; counts: Counts } & Ways) {
  const { place } = props;
  const shown = place.tables.filter((each) => each.store.toLowerCase().includes(props.search));
  return (
    <section aria-label={place.path}>
      <h2>{place.path}</h2>
      {place.error !== null && <p class="error" role="alert">{place.error}</p>}
      {place.error === null && <button class="asking" onClick={() => props.ask(place.place)}>Ask in SQL</button>}
      {place.error === null && <Operators place={place.place} tables={place.tables} open={(table) => props.open(place.place, table)} />}
      {place.error === null && shown.length === 0 && <p>No state here has such a name.</p>}
      {shown.length > 0 && (
        <div class="scrolled" tabIndex={0} role="region" aria-label={`tables of ${place.path}`}>
          <table class="facts">
            <thead>
              <tr>
                <th scope="col">Name</th><th scope="col">Kind</th><th scope="col">Key</th>
                <th scope="col" class="number">Rows</th><th scope="col" class="number">Size</th>
                <th scope="col" class="number">Versions</th><th scope="col">Newest</th><th scope="col">Health</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((each) => (
                <tr key={each.store}>
                  <th scope="row">
                    {each.last === null ? each.store : (
                      <button class="link" onClick={() => props.open(place.place, each.store)}>{each.store}</button>
                    )}
                  </th>
                  <td>{each.kind}</td>
                  <td>{Object.entries(each.key ?? {}).map(([name, type]) => `${name} ${type}`).join(", ")}</td>
                  <td class="number"><Counted place={place.place} table={each} counts={props.counts} /></td>
                  <td class="number">{bytes(each.bytes)}</td>
                  <td class="number">{each.last === null ? "" : `${each.first} to ${each.last}`}</td>
                  <td>{(each.last_commit ?? "").replace("T", " ").slice(0, 16)}</td>
                  <td>{each.health.length ? `⚠ ${each.health.join("; ")}` : "✓ ok"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
