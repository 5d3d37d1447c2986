// Whether filters find rows by their keys, or have to look at many.

import { useEffect, useState } from "preact/hooks";
import { askJson } from "../asking";
import { count } from "../texts";

interface Found {
  lookup: boolean;
  read: number | null;
  all: number | null;
}

export function Reach(props: { asked: Record<string, string> }) {
  const [found, setFound] = useState<Found | null>(null);
  const question = JSON.stringify(props.asked);
  useEffect(() => {
    setFound(null);
    if (!props.asked.where) return;
    const stop = new AbortController();
    askJson<Found>("reach", props.asked, stop.signal).then(setFound, () => undefined); // the rows say what is wrong
    return () => stop.abort();
  }, [question]);
  return <span class="quiet reach">{found && reached(found)}</span>;
}

function reached(found: Found): string {
  if (found.lookup) return "A look-up by key.";
  if (found.read === null) return "A scan: rows are read to find those that match.";
  if (found.all !== null && found.read < found.all) return `A scan: up to ${count(found.read)} of ${count(found.all)} rows are read.`;
  return "A scan: all rows are read.";
}
