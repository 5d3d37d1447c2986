// A chart that Observable Plot draws, as wide as its place, with a table of the same numbers for those who cannot see it.

import * as Plot from "@observablehq/plot";
import { useEffect, useRef, useState } from "preact/hooks";

export function Chart(props: { label: string; options: (width: number) => Plot.PlotOptions; inputs: unknown[] }) {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    if (frame.current) observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (!frame.current || width < 100) return;
    const drawn = Plot.plot({ width, style: { background: "none", color: "inherit", fontSize: "12px" }, ...props.options(width) });
    drawn.setAttribute("aria-hidden", "true");
    frame.current.replaceChildren(drawn);
  }, [width, ...props.inputs]);
  return <div ref={frame} class="chart" role="img" aria-label={props.label} />;
}
