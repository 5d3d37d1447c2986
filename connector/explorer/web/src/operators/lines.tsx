// Lines between nodes of a page, drawn behind them. Readers of the screen have the lists that the nodes are in.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export interface Edge {
  from: string; // the names of nodes, in their attribute data-node
  to: string;
  isRead: boolean; // drawn with an arrow
}

const TURN = 10;

interface Box {
  left: number;
  right: number;
  top: number;
  bottom: number;
  middle: number;
}

export function Lines(props: { edges: Edge[]; kind: string; children: ComponentChildren }) {
  const frame = useRef<HTMLDivElement>(null);
  const [paths, setPaths] = useState<{ path: string; isRead: boolean }[]>([]);
  const { edges } = props;
  const drawn = JSON.stringify(edges);
  useEffect(() => {
    const box = frame.current;
    if (!box) return;
    function measure(): void {
      if (!box) return;
      const whole = box.getBoundingClientRect();
      const nodes = new Map<string, Box>();
      for (const each of box.querySelectorAll("[data-node]")) {
        const { left, right, top, bottom } = each.getBoundingClientRect();
        nodes.set((each as HTMLElement).dataset.node as string, {
          left: left - whole.left, right: right - whole.left, top: top - whole.top, bottom: bottom - whole.top,
          middle: (top + bottom) / 2 - whole.top,
        });
      }
      const found = [];
      for (const edge of edges) {
        const [from, to] = [nodes.get(edge.from), nodes.get(edge.to)];
        if (from && to) found.push({ path: pathOf(from, to), isRead: edge.isRead });
      }
      setPaths(found);
    }
    const observer = new ResizeObserver(measure);
    observer.observe(box);
    measure();
    return () => observer.disconnect();
  }, [drawn]);
  return (
    <div class={`graph ${props.kind}`} ref={frame}>
      <svg aria-hidden="true">
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8 z" /></marker>
        </defs>
        {paths.map((each, at) => <path key={at} class="edge" d={each.path} marker-end={each.isRead ? "url(#arrow)" : undefined} />)}
      </svg>
      {props.children}
    </div>
  );
}

// A curve to a node on the right; on a narrow page, where nodes are below each other, a line down the side.
function pathOf(from: Box, to: Box): string {
  if (to.left > from.right) {
    const half = (from.right + to.left) / 2;
    return `M${from.right} ${from.middle} C${half} ${from.middle} ${half} ${to.middle} ${to.left} ${to.middle}`;
  }
  if (to.left > from.left) { // an indented node below
    const x = from.left + TURN;
    return `M${x} ${from.bottom} V${to.middle - TURN} Q${x} ${to.middle} ${x + TURN} ${to.middle} H${to.left}`;
  }
  const x = Math.min(from.left, to.left) - TURN; // a node below that is less or as far indented
  const end = Math.min(to.middle, to.top + 2 * TURN);
  return `M${from.left} ${from.middle} H${x + TURN / 2} Q${x} ${from.middle} ${x} ${from.middle + TURN / 2} V${end - TURN / 2} Q${x} ${end} ${x + TURN / 2} ${end} H${to.left}`;
}
