// Questions to the server. The token is part of the first address, which it leaves. It is kept for other tabs of the
// browser in what belongs to this origin, its port included; a cookie would go to every server of this machine.

import { type Table, tableFromIPC } from "apache-arrow";

const KEPT = "statestore-token";
let token = "";

export class Refused extends Error {}

// What answers say against their own rows goes to whoever shows them.
const listening = new Set<(texts: string[]) => void>();

export function hearNotices(take: (texts: string[]) => void): () => void {
  listening.add(take);
  return () => listening.delete(take);
}

export function keepToken(): void {
  const here = new URL(location.href);
  token = here.searchParams.get("token") ?? "";
  try {
    if (token) localStorage.setItem(KEPT, token);
    else token = localStorage.getItem(KEPT) ?? "";
  } catch {
    // a browser that keeps nothing for a page in a notebook, whose address has the token at each load
  }
  if (!here.searchParams.has("token")) return;
  here.searchParams.delete("token");
  history.replaceState(null, "", here);
}

async function fetched(path: string, given: Record<string, string>, signal?: AbortSignal): Promise<Response> {
  const asked = new URLSearchParams(Object.entries(given).filter(([, value]) => value !== ""));
  let response: Response;
  try {
    response = await fetch(`/api/${path}?${asked}`, { signal, headers: token ? { "x-statestore-token": token } : {} });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused("The explorer does not answer. Its process has ended; start statestore explore again.");
  }
  if (response.ok) {
    const noticed = response.headers.get("x-statestore-notices");
    if (noticed) listening.forEach((take) => take(JSON.parse(noticed) as string[]));
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
