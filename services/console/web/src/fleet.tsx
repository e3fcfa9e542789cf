// What the whole page knows: the overview, and through it the shards.
import type { WatchOverviewResponse } from "@bigfleet/api/v1alpha1/console";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Flow } from "./live";

export const Fleet = createContext<Flow<WatchOverviewResponse>>({ value: undefined, at: 0, lost: "", since: 0 });
export const useFleet = () => useContext(Fleet);
export function useShards(): string[] {
  const ids = new Set<string>();
  for (const s of useFleet().value?.sources ?? []) if (s.source.startsWith("shard/")) ids.add(s.source.slice(6));
  return [...ids].sort();
}

/** Asks every shard; those that do not answer are named. */
export async function each<T>(ids: string[], ask: (id: string) => Promise<T>): Promise<{ got: [string, T][]; missing: string[] }> {
  const all = await Promise.allSettled(ids.map(ask));
  const got: [string, T][] = [];
  const missing: string[] = [];
  let why: unknown;
  all.forEach((r, i) => {
    const id = ids[i] as string;
    if (r.status === "fulfilled") got.push([id, r.value]);
    else {
      missing.push(id);
      why ??= r.reason;
    }
  });
  if (got.length === 0 && why) throw why;
  return { got, missing };
}
export const Missing = ({ of }: { of: string[] }) =>
  of.length > 0 ? <p class="note warn">No answer from {of.join(", ")}: what they have is not counted here.</p> : null;
