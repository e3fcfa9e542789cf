// The drawer keeps the page and shows one thing.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { parts, useQuery } from "../url";
import { ClusterDrawer } from "./cluster";
import { MachineDrawer } from "./machine";
import { NeedDrawer } from "./need";
import { PodDrawer } from "./pod";
import { ShardDrawer } from "./shard";

export function Drawer() {
  const [q] = useQuery();
  if (!q.open) return null;
  const [kind, a = "", b = "", c = "", d = "", e = ""] = [parts(q.open)[0], ...parts(q.open).slice(1)];
  switch (kind) {
    case "machine":
      return <MachineDrawer key={q.open} shardId={a} id={b} />;
    case "need":
      return <NeedDrawer key={q.open} shardId={a} cluster={b} row={c} print={d} group={e} />;
    case "cluster":
      return <ClusterDrawer key={q.open} shardId={a} id={b} />;
    case "shard":
      return <ShardDrawer key={q.open} id={a} />;
    case "pod":
      return <PodDrawer key={q.open} cluster={a} ns={b} name={c} />;
  }
  return (
    <Sheet title="There is no such thing.">
      <p>The link is damaged.</p>
    </Sheet>
  );
}

export function Sheet({
  title,
  kind,
  end,
  children,
}: {
  title: string;
  kind?: string;
  end?: ComponentChildren;
  children: ComponentChildren;
}) {
  const [, change] = useQuery();
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    box.current?.focus();
    return () => before?.focus?.();
  }, []);
  return (
    <aside class="drawer" ref={box} tabIndex={-1} aria-label={`${kind ?? ""} ${title.slice(0, 80)}`}>
      <header>
        <h1>
          {kind && <span class="dim">{kind} </span>}
          <bdi>{title.length > 300 ? `${title.slice(0, 300)}…` : title}</bdi>
        </h1>
        {end}
        <button type="button" class="quiet" title="Close (esc)" onClick={() => change({ open: undefined })}>
          close
        </button>
      </header>
      {children}
    </aside>
  );
}
