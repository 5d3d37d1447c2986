// Why rows that are shown may not be those that the engine would show, as their answers say it.

import { useEffect, useState } from "preact/hooks";
import { hearNotices } from "./asking";

// `of` is a text of what is shown; what was said of something else goes away.
export function Notices(props: { of: string }) {
  const [said, setSaid] = useState<{ of: string; texts: string[] }>({ of: props.of, texts: [] });
  useEffect(() => hearNotices((texts) => setSaid((old) => {
    const before = old.of === props.of ? old.texts : [];
    return { of: props.of, texts: [...new Set([...before, ...texts])] };
  })), [props.of]);
  if (said.of !== props.of || said.texts.length === 0) return null;
  return <div class="notices" role="status">{said.texts.map((text) => <p key={text}>⚠ {text}</p>)}</div>;
}
