// JSON whose numbers stay as they are written: a number of JavaScript has 53 bits, and a bigint 64.

const NUMBER = "\u0000"; // begins a text that stands for a number

export function parsedExactly(text: string | null | undefined): unknown {
  if (!text) return null;
  const marked = text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g, (found) => (found.startsWith('"') ? found : `"\\u0000${found}"`));
  try {
    return JSON.parse(marked) as unknown;
  } catch {
    return null; // a long cell is cut
  }
}

// A parsed value as text: a text as it is, all else as JSON.
export function shownExactly(value: unknown): string {
  if (typeof value === "string") return value.startsWith(NUMBER) ? value.slice(1) : value;
  return JSON.stringify(value).replace(/"\\u0000([^"]*)"/g, "$1");
}
