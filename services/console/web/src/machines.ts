// Machines by the half million: pages come from the server when they are scrolled to, and only some are kept.
import type { CapacityType, MachineState } from "@bigfleet/api/v1alpha1/provider";
import { MachineFlag, type MachineView } from "@bigfleet/api/v1alpha1/shardread";
import { useEffect, useReducer, useRef } from "preact/hooks";
import { ageOf, at, said, shard } from "./api";
import { value } from "./format";

export type MachineRow = {
  id: string;
  shard: string;
  state: MachineState;
  type: string;
  zone: string;
  provider: string;
  cluster: string;
  capacity: CapacityType;
  price: number;
  node: string;
  since: number;
  cpu: number;
  rack: string;
};
export const asMachine = (v: MachineView): MachineRow =>
  ({
    id: v.machine?.id ?? "",
    shard: v.shardId,
    state: v.machine?.state ?? 0,
    type: v.machine?.instanceType ?? "",
    zone: v.machine?.zone ?? "",
    provider: v.provider,
    cluster: v.machine?.cluster || v.intendedClusterId,
    capacity: v.machine?.capacityType ?? 0,
    price: v.machine?.pricePerHour ?? 0,
    node: v.nodeName,
    since: Number(v.stateSinceUnixNanos / 1_000_000n),
    cpu: value(v.machine?.resources?.resources.cpu ?? v.machine?.allocatable?.resources.cpu),
    rack: Object.entries(v.machine?.labels ?? {}).find(([k]) => k.endsWith("/rack"))?.[1] ?? "",
  }) as MachineRow;

/** Shards see each other's machines too; each machine is shown by its owner. */
export const owned = (v: MachineView) => !v.flags.includes(MachineFlag.FOREIGN);

const pause = () => new Promise((resolve) => setTimeout(resolve));
const pageSize = 200;
const kept = 40; // pages
const atOnce = 3; // questions
const most = 1_100_000; // rows: a browser draws no taller list
type Page = { rows: MachineRow[]; used: number; at: number };
type Filter = {
  states: MachineState[];
  clusterId: string;
  provider: string;
  instanceType: string;
  zone: string;
  capacityTypes: CapacityType[];
};
type Part = {
  shard: string;
  total: number | undefined;
  pages: Map<number, Page>;
  tokens: Map<number, string>;
  busy: Set<number>;
  error: string;
};
const part = (shard: string): Part => ({
  shard,
  total: undefined,
  pages: new Map(),
  tokens: new Map([[0, ""]]),
  busy: new Set(),
  error: "",
});

/**
 * A window over all machines that match. Pages come in any order: the token of the nearest page before, and how many to leave out from there.
 * Only pages near the window are kept.
 */
export function useMachines(shards: string[], filter: Filter) {
  const [, draw] = useReducer((n: number) => n + 1, 0);
  const key = JSON.stringify([shards, filter]);
  const book = useRef({
    key: "",
    parts: [] as Part[],
    first: 0,
    last: 60,
    clock: 0,
    stop: new AbortController(),
    old: undefined as Part[] | undefined,
  });
  const b = book.current;
  const ask = (p: Part, from: number, size: number, count = false) => {
    let page = Math.floor(from / pageSize);
    while (page > 0 && !p.tokens.has(page)) page--;
    const mine = AbortSignal.any([b.stop.signal]); // each question has its own, for the age of its answer
    const began = Date.now();
    return shard
      .listMachines(
        { ...filter, ownedOnly: true, pageSize: size, pageToken: p.tokens.get(page) ?? "", skip: from - page * pageSize, count },
        at(p.shard, mine),
      )
      .then((got) => ({ got, at: began - ageOf(mine) }));
  };
  const lengthOf = (p: Part) =>
    p.total ??
    Math.max(0, ...[...p.pages].map(([k, x]) => k * pageSize + x.rows.length)) + (p.tokens.size > 1 || p.pages.size === 0 ? 1 : 0);
  const find = (parts: Part[], i: number): [Part, number] | undefined => {
    let left = i;
    for (const p of parts) {
      const n = lengthOf(p);
      if (left < n) return [p, left];
      left -= n;
    }
    return undefined;
  };
  const load = async (p: Part, k: number) => {
    const mine = b.stop;
    p.busy.add(k);
    try {
      const { got, at } = await ask(p, k * pageSize, pageSize);
      await pause(); // a page is read in one task of the browser, understood in the next, and drawn in a third: scrolling goes on in between
      if (mine.signal.aborted) return;
      p.pages.set(k, { rows: got.machines.filter(owned).map(asMachine), used: ++b.clock, at });
      if (got.nextPageToken) p.tokens.set(k + 1, got.nextPageToken);
      else p.total ??= k * pageSize + got.machines.length;
      p.error = "";
      b.old = undefined;
    } catch (e) {
      if (mine.signal.aborted) return;
      p.error = said(e);
    } finally {
      p.busy.delete(k);
    }
    await pause();
    if (mine.signal.aborted) return;
    const seen = [b.first, b.last].some((i) => {
      const hit = find(b.parts, i);
      return hit?.[0] === p && Math.floor(hit[1] / pageSize) === k;
    });
    if (seen || p.error || p.total === undefined) draw(0); // a page ahead of the window changes nothing that is shown
    if (!p.error) fill();
  };
  /** Loads what is missing near the window, the rows in it first. */
  const fill = () => {
    const need: [Part, number][] = [];
    for (const i of [b.first, b.last, b.last + pageSize, b.last + 2 * pageSize, b.first - pageSize]) {
      const hit = i >= 0 ? find(b.parts, i) : undefined;
      if (!hit) continue;
      const k = Math.floor(hit[1] / pageSize);
      const page = hit[0].pages.get(k);
      if (page) page.used = ++b.clock;
      else if (!hit[0].busy.has(k) && !need.some(([p, n]) => p === hit[0] && n === k)) need.push([hit[0], k]);
    }
    let busy = b.parts.reduce((n, p) => n + p.busy.size, 0);
    for (const [p, k] of need)
      if (busy < atOnce) {
        busy++;
        load(p, k);
      }
    for (const p of b.parts) while (p.pages.size > kept) p.pages.delete([...p.pages].reduce((x, y) => (y[1].used < x[1].used ? y : x))[0]);
  };
  const countAll = async (p: Part) => {
    const mine = b.stop;
    const got = (await ask(p, 0, 1, true).catch(() => undefined))?.got;
    if (!got || mine.signal.aborted) return;
    const total = Math.max(0, Math.min(most, Number(got.total)));
    if (p.total !== undefined && p.total !== total) {
      // places have moved
      p.tokens = new Map([[0, ""]]);
      for (const k of p.pages.keys()) if (k * pageSize > b.last + pageSize || (k + 1) * pageSize < b.first - pageSize) p.pages.delete(k);
    }
    p.total = total;
    draw(0);
  };
  /** States change: the rows in view are read again, and only they. */
  const renew = async () => {
    for (const p of b.parts) {
      const [from, to] = [find(b.parts, b.first), find(b.parts, b.last)];
      const first = from?.[0] === p ? from[1] : to?.[0] === p ? 0 : -1;
      if (first < 0) continue;
      const mine = b.stop;
      const answer = await ask(p, first, Math.min(200, b.last - b.first + 1)).catch(() => undefined);
      if (!answer || mine.signal.aborted) continue;
      answer.got.machines
        .filter(owned)
        .map(asMachine)
        .forEach((r, n) => {
          const page = p.pages.get(Math.floor((first + n) / pageSize));
          if (page) Object.assign(page, { at: answer.at }).rows[(first + n) % pageSize] = r;
        });
      draw(0);
    }
  };
  useEffect(() => {
    b.stop.abort();
    Object.assign(b, {
      key,
      parts: shards.map(part),
      first: 0,
      last: 60,
      stop: new AbortController(),
      old: b.parts.some((p) => p.pages.size > 0) ? b.parts : undefined,
    });
    draw(0);
    fill();
    const counted = setTimeout(() => b.parts.forEach(countAll), 0);
    let beat = 0;
    const fresh = setInterval(() => {
      if (document.hidden) return;
      if (b.parts.some((p) => p.error || p.pages.size === 0)) fill();
      else renew();
      if (++beat % 12 === 0) b.parts.forEach(countAll);
    }, 5000);
    return () => {
      clearTimeout(counted);
      clearInterval(fresh);
      b.stop.abort();
    };
  }, [key]);
  const parts = b.old ?? b.parts; // until the first page of another question is there
  const count = parts.reduce((n, p) => n + lengthOf(p), 0);
  const known = parts.reduce((n, p) => n + (p.total ?? 0), 0);
  /** When the oldest of the rows in view was true; 0 while none is there. */
  const seen = [b.first, b.last].flatMap((i) => {
    const hit = find(parts, i);
    return hit?.[0].pages.get(Math.floor(hit[1] / pageSize))?.at ?? [];
  });
  return {
    at: seen.length ? Math.min(...seen) : 0,
    known,
    counted: b.parts.length > 0 && b.parts.every((p) => p.total !== undefined),
    loading: b.key !== key || !!b.old || b.parts.some((p) => p.pages.size === 0 && p.total !== 0),
    error: b.parts.find((p) => p.error)?.error ?? "",
    count,
    row: (i: number): MachineRow | undefined => {
      const hit = find(parts, i);
      return hit?.[0].pages.get(Math.floor(hit[1] / pageSize))?.rows[hit[1] % pageSize];
    },
    want: (first: number, last: number) => {
      b.first = first;
      b.last = last;
      fill();
    },
  };
}
