// Machines by the half million: pages come from the server when they are scrolled to, and only some are kept.
import type { CapacityType, MachineState } from "@bigfleet/api/v1alpha1/provider";
import { MachineFlag, type MachineView } from "@bigfleet/api/v1alpha1/shardread";
import { useEffect, useReducer, useRef } from "preact/hooks";
import { at, said, shard } from "./api";
import { value } from "./format";

export type MachineRow = { id: string; shard: string; state: MachineState; type: string; zone: string; provider: string; cluster: string; capacity: CapacityType; price: number; node: string; since: number; cpu: number; rack: string };
export const asMachine = (v: MachineView): MachineRow => ({
  id: v.machine?.id ?? "", shard: v.shardId, state: v.machine?.state ?? 0, type: v.machine?.instanceType ?? "", zone: v.machine?.zone ?? "", provider: v.provider, cluster: v.machine?.cluster || v.intendedClusterId, capacity: v.machine?.capacityType ?? 0,
  price: v.machine?.pricePerHour ?? 0, node: v.nodeName, since: Number(v.stateSinceUnixNanos / 1_000_000n), cpu: value(v.machine?.resources?.resources.cpu ?? v.machine?.allocatable?.resources.cpu), rack: v.machine?.labels["topology.bigfleet.lucy.sh/rack"] ?? "",
} as MachineRow);

/** Shards see each other's machines too; each machine is shown by its owner. */
export const owned = (v: MachineView) => !v.flags.includes(MachineFlag.FOREIGN);

const pageSize = 500;
const kept = 40; // pages
type Page = { shard: string; token: string; rows: MachineRow[] | undefined; size: number };
type Filter = { states: MachineState[]; clusterId: string; provider: string; instanceType: string; zone: string; capacityTypes: CapacityType[] };

/** A window over all machines that match. The token of each page is kept, its rows only near the window. */
export function useMachines(shards: string[], filter: Filter) {
  const [, draw] = useReducer((n: number) => n + 1, 0);
  const book = useRef({ pages: [] as Page[], next: undefined as { shard: number; token: string } | undefined, busy: false, error: "", stop: new AbortController() });
  const key = JSON.stringify([shards, filter]);
  const b = book.current;
  const load = async (page: Page) => {
    const got = await shard.listMachines({ ...filter, pageSize, pageToken: page.token }, at(page.shard, b.stop.signal));
    page.rows = got.machines.filter(owned).map(asMachine);
    page.size = page.rows.length;
    return got.nextPageToken;
  };
  const more = async () => {
    if (b.busy || !b.next) return;
    b.busy = true;
    const mine = b.stop;
    const from = b.next;
    const page: Page = { shard: shards[from.shard] ?? "", token: from.token, rows: undefined, size: 0 };
    try {
      const token = await load(page);
      if (mine.signal.aborted) return;
      if (page.size > 0) b.pages.push(page);
      b.next = token ? { shard: from.shard, token } : from.shard + 1 < shards.length ? { shard: from.shard + 1, token: "" } : undefined;
      b.error = "";
    } catch (e) {
      if (mine.signal.aborted) return;
      b.error = said(e);
    }
    b.busy = false;
    draw(0);
    if (!b.error && page.size === 0) more();
  };
  useEffect(() => {
    b.stop.abort();
    Object.assign(b, { pages: [], next: shards.length ? { shard: 0, token: "" } : undefined, busy: false, error: "", stop: new AbortController() });
    draw(0);
    more();
    const fresh = setInterval(() => { // rows in view are read again: states change
      if (document.hidden) return;
      if (b.error || b.pages.length === 0) more();
      else for (const p of b.pages.filter((x) => x.rows).slice(0, 2)) load(p).then(() => draw(0), () => undefined);
    }, 5000);
    return () => {
      clearInterval(fresh);
      b.stop.abort();
    };
  }, [key]);
  const known = b.pages.reduce((n, p) => n + p.size, 0);
  const find = (i: number): [Page, number] | undefined => {
    let left = i;
    for (const p of b.pages) {
      if (left < p.size) return [p, left];
      left -= p.size;
    }
    return undefined;
  };
  return {
    known, more: !!b.next, loading: b.busy, error: b.error, count: known + (b.next ? 1 : 0),
    row: (i: number): MachineRow | undefined => {
      const hit = find(i);
      return hit?.[0].rows?.[hit[1]];
    },
    want: (first: number, last: number) => {
      if (last >= known - 50) more();
      const near = new Set([find(first)?.[0], find(last)?.[0]]);
      for (const p of near) if (p && !p.rows) load(p).then(() => draw(0), () => undefined);
      const full = b.pages.filter((p) => p.rows && !near.has(p));
      for (const p of full.slice(0, Math.max(0, full.length - kept))) p.rows = undefined;
    },
  };
}
