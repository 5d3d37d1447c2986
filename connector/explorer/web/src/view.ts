// What the page shows, all of it in the address: any view is a link.

export interface View {
  place: string;
  table: string;
  tab: "state" | "life" | "compare" | "growth" | "sql";
  version: string; // "" is the newest
  as_of: string; // a state time as text; "" is the newest of the version
  where: string; // a JSON array of [column, operator, value]
  sort: string; // a column; after a minus, the greatest first
  key: string; // a key as text
  at: string; // a key by its columns, as `where`
  from: string; // the version to compare with
  sql: string; // a statement
  order: string; // of the rows of its answer, as `sort`
  chart: string; // a JSON object of what is drawn of its answer; "" shows its rows
  from_as_of: string; // the state time to compare with; "" is the newest of that version
}

export const EMPTY: View = {
  place: "0", table: "", tab: "state", version: "", as_of: "", where: "", sort: "", key: "", at: "", from: "", from_as_of: "",
  sql: "", order: "", chart: "",
};

export function viewOfAddress(): View {
  const given = new URLSearchParams(location.search);
  const view: Record<string, string> = { ...EMPTY };
  for (const name of Object.keys(EMPTY)) view[name] = given.get(name) ?? view[name];
  if (!["state", "life", "compare", "growth", "sql"].includes(view.tab)) view.tab = "state";
  return view as unknown as View;
}

export function addressOf(view: View): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(view)) {
    if (value !== (EMPTY as unknown as Record<string, string>)[name]) given.set(name, value as string);
  }
  const text = given.toString();
  return text ? `/?${text}` : "/";
}

export function pointOf(view: View): Record<string, string> {
  return { place: view.place, table: view.table, version: view.version, as_of: view.as_of };
}
