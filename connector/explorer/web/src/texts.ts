// Numbers and times as texts.

const COUNTS = new Intl.NumberFormat("en-US");

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? "" : COUNTS.format(value);
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit ? size.toFixed(1) : size} ${units[unit]}`;
}

// Epoch milliseconds as a time in UTC, without parts that are zero; a time that no calendar has stays a number.
export function moment(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (Math.abs(value) > 8.64e15) return `${value} ms`;
  const text = new Date(value).toISOString().replace(/\.000Z$/, "Z");
  return text.replace("T", " ").replace("Z", " UTC");
}
