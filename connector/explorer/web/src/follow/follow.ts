// New versions of the open table: the page asks for them as long as it is in sight and nobody has paused it.

import { useEffect, useRef, useState } from "preact/hooks";
import { askJson } from "../asking";

const EVERY_MS = 2_000;
const AFTER_ERROR_MS = 5_000;

export interface News {
  first: number;
  last: number;
  identity: string;
}

export interface Following {
  news: News | null; // of the last time that there was something new
  problem: string; // why the table cannot be followed at present
  isReplaced: boolean; // it is another table of the same name
  isOn: boolean;
  turn: (on: boolean) => void;
}

export function useNews(place: string, table: string): Following {
  const [news, setNews] = useState<News | null>(null);
  const [problem, setProblem] = useState("");
  const [isReplaced, setReplaced] = useState(false);
  const [isOn, turn] = useState(true);
  const known = useRef<News | null>(null);
  useEffect(() => {
    if (!isOn) return;
    const stop = new AbortController();
    let timer = 0;
    const later = (after: number) => { timer = window.setTimeout(look, after); };
    function look(): void {
      if (document.visibilityState !== "visible") {
        later(EVERY_MS);
        return;
      }
      askJson<News>("news", { place, table }, stop.signal).then(
        (found) => {
          const old = known.current;
          setProblem("");
          if (old !== null && old.identity !== found.identity) setReplaced(true);
          if (old === null || old.first !== found.first || old.last !== found.last || old.identity !== found.identity) {
            known.current = found;
            setNews(found);
          }
          later(EVERY_MS);
        },
        (reason: Error) => {
          if (stop.signal.aborted) return;
          setProblem(reason.message);
          later(AFTER_ERROR_MS);
        },
      );
    }
    look();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [place, table, isOn]);
  return { news, problem, isReplaced, isOn, turn };
}

// Whether arrow keys scroll a table sideways, which is wider than its place.
function isScrolled(each: Element): boolean {
  return each.matches(".scrolled") && each.scrollWidth > each.clientWidth;
}

// Keys that work on the whole page, unless what has the focus takes them itself.
export function useKeys(pressed: (key: string) => boolean): void {
  const latest = useRef(pressed);
  latest.current = pressed;
  useEffect(() => {
    const taken = "input, textarea, select, [contenteditable], [role=slider], [role=application], [role=textbox]";
    function press(event: KeyboardEvent): void {
      const isTaken = event.composedPath().some((each) => each instanceof Element && (each.matches(taken) || isScrolled(each)));
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTaken) return;
      if (latest.current(event.key)) event.preventDefault();
    }
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
}
