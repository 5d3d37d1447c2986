// Why the state grows: its size over versions, its keys, its skew and its ages.

import "./growth.css";

import { type View, pointOf } from "../view";
import { Ages } from "./ages";
import { BusyAndBig, type Opened } from "./keys";
import { OverVersions } from "./over-versions";
import { Skew } from "./skew";

export function Growth(props: { view: View; version: number; columns: string[]; opened: Opened }) {
  const asked = pointOf(props.view);
  return (
    <div class="growth">
      <OverVersions asked={asked} version={props.version} />
      <BusyAndBig asked={asked} opened={props.opened} />
      <Skew asked={asked} />
      <Ages asked={asked} isHistory={!props.columns.includes("valid_from")} />
    </div>
  );
}
