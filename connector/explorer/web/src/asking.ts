// Questions to the server. The token is part of the first address; it is kept for this tab and leaves the address bar.

import { type Table, tableFromIPC } from "apache-arrow";

const KEPT = "statestore-token";

export class Refused extends Error {}

// What answers say against their own rows goes to whoever shows the table.
let hear: (texts: string[]) => void = () => undefined;

export function hearNotices(take: (texts: string[]) => void): void {
  hear = take;
}

export function keepToken(): void {
  const here = new URL(location.href);
  const token = here.searchParams.get("token");
  if (token === null) return;
  sessionStorage.setItem(KEPT, token);
  here.searchParams.delete("token");
  history.replaceState(null, "", here);
}

async function fetched(path: string, given: Record<string, string>, signal?: AbortSignal): Promise<Response> {
  const asked = new URLSearchParams(Object.entries(given).filter(([, value]) => value !== ""));
  const token = sessionStorage.getItem(KEPT);
  let response: Response;
  try {
    response = await fetch(`/api/${path}?${asked}`, { signal, headers: token ? { "x-statestore-token": token } : {} });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused("The explorer does not answer. Its process has ended; start statestore explore again.");
  }
  if (response.ok) {
    const noticed = response.headers.get("x-statestore-notices");
    if (noticed) hear(JSON.parse(noticed) as string[]);
    return response;
  }
  if (response.status === 403) throw new Refused("The explorer was started again; open the address that it printed.");
  const text = await response.text();
  let said = text;
  try {
    said = (JSON.parse(text) as { error: string }).error;
  } catch {
    // a sentence of the guard, which is plain text
  }
  throw new Refused(said || `The explorer answered with status ${response.status}.`);
}

export async function askJson<T>(path: string, given: Record<string, string>, signal?: AbortSignal): Promise<T> {
  return (await fetched(path, given, signal)).json() as Promise<T>;
}

export async function askRows(path: string, given: Record<string, string>, signal?: AbortSignal): Promise<Table> {
  return tableFromIPC(await (await fetched(path, given, signal)).arrayBuffer());
}
