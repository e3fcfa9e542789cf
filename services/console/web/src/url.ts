// The state of the page is its URL: place, filters, drawer, moment.
import { useMemo } from "preact/hooks";
import { useLocation, useSearch } from "wouter-preact";

export type Query = Record<string, string>;

export function useQuery(): [Query, (change: Record<string, string | undefined>, push?: boolean) => void] {
  const [path, go] = useLocation();
  const search = useSearch();
  const query = useMemo(() => Object.fromEntries(new URLSearchParams(search)), [search]);
  return [
    query,
    (change, push = false) => {
      // of the address as it is now: two changes of one moment must not undo each other
      const next = new URLSearchParams(location.search);
      for (const [k, v] of Object.entries(change)) {
        if (v) next.set(k, v);
        else next.delete(k);
      }
      const s = next.toString();
      go(s ? `${path}?${s}` : path, { replace: !push });
    },
  ];
}

/** A link that keeps the moment. */
export function link(path: string, change: Record<string, string | undefined> = {}): string {
  const next = new URLSearchParams();
  const now = new URLSearchParams(location.search);
  const moment = now.get("at");
  if (moment) next.set("at", moment);
  for (const [k, v] of Object.entries(change)) if (v) next.set(k, v);
  const s = next.toString();
  return s ? `${path}?${s}` : path;
}

/** A link to the same page with a drawer open. */
export function opened(what: string): string {
  const next = new URLSearchParams(location.search);
  next.set("open", what);
  return `${location.pathname}?${next}`;
}

const enc = encodeURIComponent;
export const open = {
  machine: (id: string, shardId = "") => `machine/${enc(shardId)}/${enc(id)}`,
  need: (shardId: string, cluster: string, row: string, print: string, group: string) =>
    `need/${enc(shardId)}/${enc(cluster)}/${enc(row)}/${enc(row ? "" : print)}/${enc(row ? "" : group)}`,
  cluster: (shardId: string, id: string) => `cluster/${enc(shardId)}/${enc(id)}`,
  shard: (id: string) => `shard/${enc(id)}`,
  pod: (cluster: string, ns: string, name: string) => `pod/${enc(cluster)}/${enc(ns)}/${enc(name)}`,
};
/** The parts of a drawer's name; a link that is damaged opens nothing. */
export function parts(what: string): string[] {
  try {
    return what.split("/").map(decodeURIComponent);
  } catch {
    return [];
  }
}

/** The moment that the page shows: nanoseconds, or 0 for now. */
export function momentOf(q: Query): bigint {
  const t = q.at ? Date.parse(q.at) : Number.NaN;
  return Number.isNaN(t) ? 0n : BigInt(t) * 1_000_000n;
}
