import { ShardState } from "@bigfleet/api/v1alpha1/coordinator";
import type { ComponentChildren } from "preact";
import { Link } from "wouter-preact";
import { Ask, Bar, Empty, Mark, Sentence, Table, Waiting } from "../design/parts";
import { useFleet } from "../fleet";
import { byState, count, dollars, plainName, since, span, stateTone } from "../format";
import { useNow } from "../live";
import { link, open, opened } from "../url";
import { Coordinator, Ownership, Moves } from "./coordination";
import { Settings } from "./settings";

const tabs: [string, string][] = [
  ["shards", "Shards"],
  ["sources", "Sources"],
  ["coordinator", "Coordinator"],
  ["ownership", "Ownership"],
  ["moves", "Moves"],
  ["settings", "Settings"],
];

export function System({ tab }: { tab: string }) {
  const page: Record<string, () => ComponentChildren> = {
    shards: () => <Shards />,
    sources: () => <Sources />,
    coordinator: () => <Coordinator />,
    ownership: () => <Ownership />,
    moves: () => <Moves />,
    settings: () => <Settings />,
  };
  return (
    <div class="page">
      <div class="head">
        <h1>System</h1>
      </div>
      <nav class="tabs" aria-label="System">
        {tabs.map(([k, t]) => (
          <Link key={k} href={link(`/system/${k}`)} aria-current={k === tab ? "page" : undefined}>
            {t}
          </Link>
        ))}
      </nav>
      {page[tab]?.() ?? <Empty>There is no such page.</Empty>}
    </div>
  );
}

function Sources() {
  const flow = useFleet();
  const now = useNow();
  if (!flow.value) return <Waiting />;
  return (
    <>
      <p>
        <Ask rpc="Console/GetSources" cli="bigfleet get shards" prom="max(bigfleet_console_source_age_seconds)" />
      </p>
      <Table
        label="Sources"
        rows={flow.value.sources}
        id={(s) => s.source}
        columns={[
          {
            head: "Source",
            cell: (s) =>
              s.source.startsWith("shard/") ? <Link href={opened(open.shard(s.source.slice(6)))}>{s.source.slice(6)}</Link> : s.source,
          },
          {
            head: "State",
            cell: (s) =>
              !s.configured ? (
                <span class="dim">not configured: {s.flag}</span>
              ) : s.error ? (
                <Mark shape="▲" word="no answer" tone="short" />
              ) : (
                <Mark shape="●" word="live" tone="met" />
              ),
          },
          { head: "Age", num: true, cell: (s) => (s.lastDataAtUnixNanos ? since(s.lastDataAtUnixNanos, now) : "never heard") },
          { head: "Why", cell: (s) => <Sentence>{s.error}</Sentence> },
        ]}
      />
    </>
  );
}

function Shards() {
  const flow = useFleet();
  const now = useNow();
  if (!flow.value) return <Waiting />;
  const known = new Map(flow.value.fleet?.shards.map((s) => [s.shardId, s]) ?? []);
  if (flow.value.shards.length === 0 && known.size === 0)
    return <Empty>No shard is known. A shard registers with the coordinator within seconds of its start.</Empty>;
  return (
    <>
      <p>
        <Ask rpc="CoordinatorAdmin/GetFleetStatus" cli="bigfleet get shards" prom="sum by (instance) (bigfleet_shard_needs)" />
      </p>
      <Table
        label="Shards"
        rows={[...new Set([...known.keys(), ...flow.value.shards.map((s) => s.shardId)])].sort()}
        id={(id) => id}
        columns={[
          { head: "Shard", cell: (id) => <Link href={opened(open.shard(id))}>{id}</Link> },
          {
            head: "State",
            cell: (id) => {
              const s = flow.value?.shards.find((x) => x.shardId === id);
              const src = flow.value?.sources.find((x) => x.source === `shard/${id}`);
              return src?.error ? (
                <Mark shape="▲" word={`no answer for ${since(src.lastDataAtUnixNanos, now)}`} tone="short" />
              ) : s?.ready ? (
                <Mark shape="●" word="ready" tone="met" />
              ) : (
                <Mark shape="◇" word={plainName(ShardState[known.get(id)?.state ?? 0] ?? "") || "not ready"} tone="held" />
              );
            },
          },
          {
            head: "Cycle",
            num: true,
            cell: (id) => {
              const s = flow.value?.shards.find((x) => x.shardId === id);
              return s ? `${count(s.cycle)} · ${span(Number(s.cycleDurationNanos) / 1e6)}` : "–";
            },
          },
          {
            head: "Needs",
            num: true,
            cell: (id) => {
              const s = flow.value?.shards.find((x) => x.shardId === id);
              return s ? <Link href={link("/demand", { shard: id })}>{count(s.needs)}</Link> : "–";
            },
          },
          {
            head: "Waiting",
            num: true,
            cell: (id) => {
              const n = flow.value?.shards.find((x) => x.shardId === id)?.unsatisfiedNeeds ?? 0;
              return <span class={n ? "short" : "dim"}>{count(n)}</span>;
            },
          },
          { head: "Sessions", num: true, cell: (id) => count(flow.value?.shards.find((x) => x.shardId === id)?.sessions ?? 0) },
          {
            head: "Machines",
            cell: (id) => (
              <Bar
                thin
                label={id}
                parts={byState(flow.value?.shards.find((x) => x.shardId === id)?.machinesByState ?? {}).map(([k, n]) => ({
                  label: plainName(k),
                  size: n,
                  tone: stateTone[plainName(k)] ?? "dim",
                }))}
              />
            ),
          },
          { head: "$/h", num: true, cell: (id) => dollars(flow.value?.shards.find((x) => x.shardId === id)?.costPerHour ?? 0) },
          { head: "Address", cell: (id) => <code>{known.get(id)?.address ?? ""}</code> },
          { head: "Version", cell: (id) => flow.value?.shards.find((x) => x.shardId === id)?.version ?? "" },
        ]}
      />
    </>
  );
}
