// The overview follows what is written: the page looks at the logs of all tables, and asks anew for what is known of
// those that have a newer version. The more a look costs, the less often it looks.

import { useEffect, useRef, useState } from "preact/hooks";
import { askJson } from "../asking";
import type { PlaceFacts, TableFacts } from "../facts";

const EVERY_MS = 2_000;
const AFTER_ERROR_MS = 5_000;
const REST = 10; // times as long as a look took
const AT_ONCE = 50; // tables

interface Marks {
  place: number;
  error: string | null;
  tables: Record<string, string>;
}

export interface FollowedPlaces {
  isOn: boolean;
  turn: (on: boolean) => void;
  problem: string;
}

export function useMarks(places: PlaceFacts[] | null, isShown: boolean, set: (places: PlaceFacts[]) => void, lookAgain: () => void): FollowedPlaces {
  const [isOn, turn] = useState(true);
  const [problem, setProblem] = useState("");
  const known = useRef(places);
  known.current = places;
  const isFollowed = isOn && isShown && places !== null;
  useEffect(() => {
    if (!isFollowed) return;
    const stop = new AbortController();
    let timer = 0;
    const later = (after: number) => { timer = window.setTimeout(look, after); };
    async function look(): Promise<void> {
      if (document.visibilityState !== "visible") {
        later(EVERY_MS);
        return;
      }
      const begun = performance.now();
      try {
        const found = await askJson<Marks[]>("marks", {}, stop.signal);
        const old = known.current as PlaceFacts[];
        if (found.some((each) => (each.error === null) !== (old[each.place].marks !== null))) lookAgain();
        else {
          const next = await Promise.all(found.map((each) => renewed(old[each.place], each, stop.signal)));
          // What came meanwhile, by Look again, is newer.
          if (known.current === old && next.some((each, at) => each !== old[at])) set(next);
        }
        setProblem("");
        later(Math.max(EVERY_MS, REST * (performance.now() - begun)));
      } catch (reason) {
        if (stop.signal.aborted) return;
        setProblem((reason as Error).message);
        later(AFTER_ERROR_MS);
      }
    }
    later(EVERY_MS);
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [isFollowed]);
  return { isOn, turn, problem };
}

async function renewed(old: PlaceFacts, found: Marks, signal: AbortSignal): Promise<PlaceFacts> {
  const before = old.marks;
  if (found.error !== null || before === null) return old;
  const names = Object.keys(found.tables);
  const changed = names.filter((name) => found.tables[name] !== before[name]).slice(0, AT_ONCE);
  const isGone = Object.keys(before).some((name) => !(name in found.tables));
  if (changed.length === 0 && !isGone) return old;
  const asked = { place: String(old.place), names: JSON.stringify(changed) };
  const facts = changed.length ? await askJson<TableFacts[]>("tables", asked, signal) : [];
  const all = new Map([...old.tables, ...facts].map((each) => [each.store, each]));
  const marks = Object.fromEntries(names.filter((name) => all.has(name)).map((name) => [name, changed.includes(name) ? found.tables[name] : before[name]]));
  return { ...old, marks, tables: names.flatMap((name) => all.get(name) ?? []) };
}
