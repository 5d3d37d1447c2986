// What completes a statement: tables, columns of the tables it names, functions, words and the clauses of time travel.

import { type Completion, type CompletionContext, type CompletionResult, type CompletionSource, snippetCompletion } from "@codemirror/autocomplete";
import { syntaxTree } from "@codemirror/language";
import { type Moment, clauseOf } from "./moment";
import { type NamedTable, type Names, quoted, quotedTable } from "./names";

const NAME = String.raw`(?:"[^"]+"|[\w$]+)`;
const PATH = String.raw`${NAME}(?:\.${NAME})*`;
const CLAUSE = String.raw`(?:\s+(?:for\s+system_(?:version|time)|version|timestamp)\s+as\s+of\s+(?:'[^']*'|[\w.]+)|\s+at\s*\([^)]*\))`;
const READ = new RegExp(String.raw`\b(?:from|join)\s+(${PATH})(?:${CLAUSE})*(?:\s+(?:as\s+)?(${NAME}))?`, "gi");
const AFTER_FROM = /\b(?:from|join)\s+$|\bfrom\b[^()]*,\s*$/i;
const AFTER_TABLE = new RegExp(String.raw`\b(?:from|join)\s+(${PATH})((?:${CLAUSE})*)\s+$`, "i");
const IN_CALL = /\b(?:history|changes)\s*\(\s*'$/i;
const AFTER_DOT = new RegExp(String.raw`(${PATH})\.$`);

const bare = (name: string) => name.replaceAll('"', "").toLowerCase();

export function completionOf(names: Names, moment: () => Moment): CompletionSource {
  const byName = new Map(names.tables.map((each) => [each.name.toLowerCase(), each]));
  const tables = names.tables.map((each): Completion => ({
    label: each.name, apply: quotedTable(each.name, names.reserved), type: "class", boost: each.metadata ? -5 : 5,
    detail: each.metadata ? "metadata" : "table", info: each.columns.map((one) => `${one.name} ${one.type}`).join(", ").slice(0, 400),
  }));
  const ranges = [
    snippetCompletion("history('${table}')", { label: "history('…')", type: "function", detail: "every version of a table" }),
    snippetCompletion("changes('${table}', ${first}, ${last})", { label: "changes('…')", type: "function", detail: "the changes between versions" }),
  ];
  const functions = names.functions.map((each): Completion => ({
    label: each.name, apply: `${each.name}(`, type: "function", detail: each.kind, boost: -20,
    info: each.description ? `${each.signature}: ${each.description}` : each.signature,
  }));
  const words = names.words.map((each): Completion => ({ label: each.toUpperCase(), type: "keyword", boost: names.reserved.includes(each) ? 0 : -40 }));
  const types = names.types.map((each): Completion => ({ label: each, type: "type", boost: -50 }));

  function columnsOf(table: NamedTable): Completion[] {
    return table.columns.map((each) => ({
      label: each.name, apply: quoted(each.name, names.reserved), type: "property", detail: each.type, info: table.name, boost: 20,
    }));
  }
  // The tables that the statement reads, by the names that columns may have before a dot.
  function readBy(text: string): Map<string, NamedTable> {
    const found = new Map<string, NamedTable>();
    for (const [, path, alias] of text.matchAll(READ)) {
      const table = byName.get(bare(path));
      if (!table) continue;
      found.set(bare(path), table);
      found.set(bare(path).split(".").pop() as string, table);
      if (alias && !names.reserved.includes(alias.toLowerCase())) found.set(bare(alias), table);
    }
    return found;
  }
  function clausesOf(table: NamedTable | undefined): Completion[] {
    const shown = moment();
    const isShown = !table || !shown.table || shown.table.toLowerCase() === table.name.toLowerCase();
    const clause = isShown ? clauseOf(shown) : "";
    const version = (isShown && shown.version) || 0;
    return [
      ...(clause ? [{ label: clause, type: "keyword", detail: "the moment shown", boost: 90 }] : []),
      snippetCompletion(`VERSION AS OF \${${version}}`, { label: "VERSION AS OF", type: "keyword", detail: "as a commit left it", boost: 80 }),
      snippetCompletion("TIMESTAMP AS OF '${2024-05-01T09:30Z}'", { label: "TIMESTAMP AS OF", type: "keyword", detail: "the state at a time", boost: 79 }),
      snippetCompletion(`AT (VERSION => \${${version}})`, { label: "AT (VERSION => …)", type: "keyword", boost: 70 }),
      snippetCompletion("AT (TIMESTAMP => '${2024-05-01T09:30Z}')", { label: "AT (TIMESTAMP => …)", type: "keyword", boost: 69 }),
      snippetCompletion(`FOR SYSTEM_VERSION AS OF \${${version}}`, { label: "FOR SYSTEM_VERSION AS OF", type: "keyword", boost: 68 }),
      snippetCompletion("FOR SYSTEM_TIME AS OF '${2024-05-01T09:30Z}'", { label: "FOR SYSTEM_TIME AS OF", type: "keyword", boost: 67 }),
    ];
  }

  return (context: CompletionContext): CompletionResult | null => {
    const word = context.matchBefore(/[\w$]+/);
    const from = word ? word.from : context.pos;
    const before = context.state.sliceDoc(Math.max(0, from - 4000), from);
    const valid = /^[\w$]*$/;
    if (IN_CALL.test(before)) {
      const options = names.tables.filter((each) => !each.metadata).map((each) => ({ label: each.name, type: "class" }));
      return { from, options, validFor: valid };
    }
    if (/Comment|String/.test(syntaxTree(context.state).resolveInner(context.pos, -1).name)) return null;
    const text = context.state.doc.sliceString(0, 100_000);
    const dotted = AFTER_DOT.exec(before);
    if (dotted) {
      const start = bare(dotted[1]);
      const table = readBy(text).get(start);
      const inStore = names.tables.filter((each) => each.name.toLowerCase().startsWith(`${start}.`));
      const options = [
        ...(table ? columnsOf(table) : []),
        ...inStore.map((each) => ({ label: each.name.slice(start.length + 1), apply: quoted(each.name.slice(start.length + 1), names.reserved), type: "class" })),
      ];
      return options.length ? { from, options, validFor: valid } : null;
    }
    if (AFTER_FROM.test(before)) return { from, options: [...tables, ...ranges], validFor: valid };
    const read = AFTER_TABLE.exec(before);
    const clauses = read ? clausesOf(byName.get(bare(read[1]))) : [];
    if (!word && !context.explicit && !clauses.length) return null;
    const columns = [...new Set(readBy(text).values())].flatMap(columnsOf);
    const seen = new Set<string>();
    const ownColumns = columns.filter((each) => !seen.has(each.label) && seen.add(each.label));
    return { from, options: [...clauses, ...ownColumns, ...words, ...functions, ...types, ...(word ? tables : [])], validFor: valid };
  };
}
