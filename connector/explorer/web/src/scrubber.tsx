// The scrubber: the versions on an axis of their commit times, with the density of changes.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useKeys } from "./follow/follow";
import { askJson } from "./asking";
import { count, moment } from "./texts";

export interface Axis {
  first: number;
  last: number;
  versions: number[];
  times: (number | null)[];
  changes: (number | null)[];
  commits: number[];
  missing: number[]; // versions of a source that no capture could read, before each
}

const HEIGHT = 56;
const STEP_MS = 400;

// The place of each mark from 0 to 1: by time where all times are known and differ, else by version.
function placesOf(axis: Axis): number[] {
  const { times, versions } = axis;
  const first = times[0];
  const last = times[times.length - 1];
  const byTime = times.every((each) => each !== null) && (last as number) > (first as number);
  const [start, end] = byTime ? [first as number, last as number] : [versions[0], versions[versions.length - 1]];
  const span = end - start || 1;
  return (byTime ? (times as number[]) : versions).map((each) => (each - start) / span);
}

export function timeOf(axis: Axis, version: number): number | null {
  const at = axis.versions.findIndex((each) => each >= version);
  return at < 0 ? null : axis.times[at];
}

interface Props {
  axis: Axis;
  version: number;
  isNewest: boolean;
  isFollowed: boolean;
  follow: (on: boolean) => void;
  go: (version: number | null) => void;
  place: string;
  table: string;
  jump: (version: number, as_of: string) => void; // to a version, and to a state time where one was given
}

export function Scrubber(props: Props) {
  const { axis, version, go } = props;
  const places = useMemo(() => placesOf(axis), [axis]);
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(800);
  const [isPlaying, setPlaying] = useState(false);
  const [text, setText] = useState("");
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(100, entry.contentRect.width)));
    if (frame.current) observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (!isPlaying) return;
    if (version >= axis.last) {
      setPlaying(false);
      return;
    }
    const timer = setTimeout(() => go(version + 1), STEP_MS);
    return () => clearTimeout(timer);
  }, [isPlaying, version, axis]);
  const bars = useMemo(() => barsOf(axis, places, width), [axis, places, width]);
  const reached = useRef(version); // keys come faster than the page is drawn
  reached.current = version;
  const clamped = (wanted: number) => Math.min(axis.last, Math.max(axis.first, wanted));
  const at = axis.versions.findIndex((each) => each >= version);
  const cursor = (at < 0 ? 1 : places[at]) * width;
  const shownTime = moment(timeOf(axis, version));
  const missing = at < 0 ? 0 : axis.missing[at];
  const gaps = useMemo(() => [...new Set(places.filter((_, index) => axis.missing[index] > 0).map((place) => Math.round(place * width)))], [axis, places, width]);

  const newer = axis.last - version;
  useKeys((key) => {
    if (key === "ArrowLeft") step(reached.current - 1);
    else if (key === "ArrowRight") step(reached.current + 1);
    else return false;
    return true;
  });
  // A letter is a key of the scrubber alone, because those who dictate may say it anywhere.
  function lettered(event: KeyboardEvent): void {
    if (event.key.toLowerCase() !== "l" || event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLInputElement) return;
    event.preventDefault();
    live();
  }
  function live(): void {
    props.follow(true);
    go(null);
  }

  function pointed(event: PointerEvent): void {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    let best = 0;
    for (let each = 1; each < places.length; each += 1) {
      if (Math.abs(places[each] - share) < Math.abs(places[best] - share)) best = each;
    }
    go(clamped(axis.versions[best]));
  }
  function step(wanted: number): void {
    reached.current = clamped(wanted);
    go(reached.current);
  }
  function pressed(event: KeyboardEvent): void {
    const version = reached.current;
    const wide = Math.max(1, Math.round((axis.last - axis.first) / 20));
    const moves: Record<string, number> = {
      ArrowLeft: version - 1, ArrowDown: version - 1, ArrowRight: version + 1, ArrowUp: version + 1,
      PageDown: version - wide, PageUp: version + wide, Home: axis.first, End: axis.last,
    };
    if (event.key in moves) {
      event.preventDefault();
      step(moves[event.key]);
    }
  }
  function jump(event: Event): void {
    event.preventDefault();
    const given = text.trim();
    if (!given) return;
    askJson<{ version: number; as_of: string; note: string }>("moment", { place: props.place, table: props.table, text: given }).then(
      (found) => {
        setProblem(found.note);
        props.jump(found.version, found.as_of);
      },
      (reason: Error) => setProblem(reason.message),
    );
  }

  return (
    <section class="scrubber" aria-label="time" onKeyDown={lettered}>
      <div class="moment">
        <strong>version {count(version)}</strong>
        <span>{shownTime && `committed ${shownTime}`}</span>
        <span class={props.isNewest ? "badge now" : "badge"}>
          {props.isNewest ? (props.isFollowed ? "● newest, followed" : "● newest") : version !== clamped(version) ? "⚠ cannot be read" : `◷ the past, ${count(newer)} newer ${newer === 1 ? "version" : "versions"}`}
        </span>
        {missing > 0 && <span class="badge gap">⚠ a gap before it: {count(missing)} {missing === 1 ? "version was" : "versions were"} gone before capture</span>}
      </div>
      <div
        ref={frame} class="axis" role="slider" tabIndex={0} aria-label="version"
        aria-valuemin={axis.first} aria-valuemax={axis.last} aria-valuenow={clamped(version)}
        aria-valuetext={`version ${version}${shownTime && `, committed ${shownTime}`}${missing > 0 ? `, after a gap of ${missing}` : ""}`}
        onKeyDown={pressed}
        onPointerDown={(event) => { event.currentTarget.setPointerCapture(event.pointerId); pointed(event); }}
        onPointerMove={(event) => { if (event.buttons & 1) pointed(event); }}
      >
        <svg width={width} height={HEIGHT} aria-hidden="true">
          {bars.map((bar) => (
            <rect key={bar.x} class={bar.x <= cursor ? "bar past" : "bar"} x={bar.x} width={2}
              y={HEIGHT - 6 - bar.height} height={bar.height} />
          ))}
          {gaps.map((x) => <line key={`gap ${x}`} class="gap" x1={x} x2={x} y1={0} y2={HEIGHT - 5} />)}
          <line class="base" x1={0} x2={width} y1={HEIGHT - 5} y2={HEIGHT - 5} />
          <line class="cursor" x1={cursor} x2={cursor} y1={0} y2={HEIGHT} />
          <circle class="cursor" cx={cursor} cy={HEIGHT - 5} r={5} />
        </svg>
      </div>
      <div class="ends"><span>{moment(axis.times[0])}</span><span>{moment(axis.times[axis.times.length - 1])}</span></div>
      <div class="controls">
        <button onClick={() => go(axis.first)} aria-label="oldest version" title="oldest (Home)">|◀</button>
        <button onClick={() => step(reached.current - 1)} aria-label="one version back" title="back (←)">◀</button>
        <button onClick={() => setPlaying(!isPlaying)} aria-pressed={isPlaying}>{isPlaying ? "Pause" : "Play"}</button>
        <button onClick={() => step(reached.current + 1)} aria-label="one version on" title="on (→)">▶</button>
        <button onClick={() => go(null)} aria-label="newest version" title="newest (End)">▶|</button>
        <button onClick={live} aria-disabled={props.isNewest && props.isFollowed} title="the newest version, and newer ones as they come (L)">Go live</button>
        <button onClick={() => props.follow(!props.isFollowed)} aria-pressed={!props.isFollowed} title="look for newer versions, or not">
          {props.isFollowed ? "Stop following" : "Not followed"}
        </button>
        <form onSubmit={jump}>
          <label>
            <span>Go to</span>
            <input value={text} placeholder="12, a time, or 12@time" onInput={(event) => setText(event.currentTarget.value)} />
          </label>
          <button>Go</button>
        </form>
        {problem && <span class="error" role="alert">{problem}</span>}
      </div>
    </section>
  );
}

function barsOf(axis: Axis, places: number[], width: number): { x: number; height: number }[] {
  const sums = new Map<number, number>();
  places.forEach((place, index) => {
    const x = Math.round((place * (width - 2)) / 3) * 3;
    sums.set(x, (sums.get(x) ?? 0) + (axis.changes[index] ?? axis.commits[index]));
  });
  const most = Math.max(1, ...sums.values());
  const scaled = (value: number) => Math.max(3, (Math.log1p(value) / Math.log1p(most)) * (HEIGHT - 12));
  return [...sums].map(([x, value]) => ({ x, height: scaled(value) }));
}
