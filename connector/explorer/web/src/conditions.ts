// The conditions that find the row of a key, from its cells. The server reads the texts by the types of their columns:
// parsed here, the great numbers of a nested key would lose their last digits.

import type { Column } from "./grid";

export function conditionsOfKey(keys: string[], columns: Column[], cells: (string | null | undefined)[]): string {
  const found = keys
    .map((name) => ({ name, at: columns.findIndex((each) => each.name === name) }))
    .filter(({ at }) => at >= 0)
    .map(({ name, at }) => {
      const cell = cells[at];
      return cell === null || cell === undefined ? [name, "is_null"] : [name, "is", cell];
    });
  return JSON.stringify(found);
}
