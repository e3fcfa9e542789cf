// Capacity: what there is of each type in each zone, what is out of stock, and what capacity is announced to clusters.
import type { CapacityHint, PoolStatus } from "@bigfleet/api/v1alpha1/shardread";
import { Link } from "wouter-preact";
import { at, shard } from "../api";
import { Ask, Bar, Empty, Mark, Name, Section, Sentence, Shown, Table, Waiting } from "../design/parts";
import { each, Missing, useFleet, useShards } from "../fleet";
import { amounts, capacityName, count, dollars, plainName, requirement, span, stateTone } from "../format";
import { useAnswer, useNow } from "../live";
import { link } from "../url";

type Cell = { machines: number; cost: number; states: Record<string, number>; out: PoolStatus[] };

export function Capacity() {
  const ids = useShards();
  if (ids.length === 0) return <Waiting />;
  return (
    <>
      <Stock ids={ids} />
      <Hints ids={ids} />
    </>
  );
}

/** Types by zone: how many machines, what they cost, and what the provider is out of. */
function Stock({ ids }: { ids: string[] }) {
  const fleet = useFleet();
  const costs = useAnswer((s) => each(ids, (id) => shard.getCost({ groupBy: ["type", "zone"] }, at(id, s))), [ids.join()], 5000);
  const out = (fleet.value?.shards ?? []).flatMap((s) => s.providers.flatMap((p) => p.stockedOutPools));
  const now = useNow(5000);
  return (
    <Section
      title="Machines by type and zone"
      end={
        <Ask
          rpc="ShardRead/GetCost"
          target={ids[0]}
          body={{ groupBy: ["type", "zone"] }}
          cli="bigfleet cost --by type,zone"
          prom="sum by (provider) (bigfleet_shard_pools_stocked_out)"
        />
      }
    >
      <Shown of={costs}>
        {(a) => {
          const cells = new Map<string, Cell>();
          const zones = new Set<string>();
          const types = new Map<string, number>();
          const cell = (type: string, zone: string): Cell => {
            zones.add(zone);
            types.set(type, types.get(type) ?? 0);
            const key = JSON.stringify([type, zone]);
            const c = cells.get(key) ?? { machines: 0, cost: 0, states: {}, out: [] };
            cells.set(key, c);
            return c;
          };
          for (const [, r] of a.got)
            for (const row of r.points[0]?.rows ?? []) {
              const [type = "", zone = ""] = row.group;
              const c = cell(type, zone);
              c.machines += row.machines;
              for (const [k, v] of Object.entries(row.costPerHourByState)) {
                c.cost += v;
                c.states[k] = (c.states[k] ?? 0) + v;
              }
              types.set(type, (types.get(type) ?? 0) + row.machines);
            }
          for (const x of out) cell(x.instanceType, x.zone).out.push(x);
          const rows = [...types].sort((x, y) => y[1] - x[1] || (x[0] < y[0] ? -1 : 1)).map(([t]) => t);
          return (
            <>
              <Missing of={a.missing} />
              {rows.length === 0 ? (
                <Empty>There is no machine yet, and no provider is out of anything.</Empty>
              ) : (
                <Table
                  label="Machines by type and zone"
                  rows={rows.slice(0, 300)}
                  id={(t) => t}
                  columns={[
                    {
                      head: "Type",
                      cell: (t) => (
                        <Link href={link("/fleet/machines", { type: t })}>
                          <Name>{t}</Name>
                        </Link>
                      ),
                    },
                    ...[...zones].sort().map((z) => ({
                      head: z,
                      cell: (t: string) => <Room c={cells.get(JSON.stringify([t, z]))} type={t} zone={z} now={now} />,
                    })),
                  ]}
                />
              )}
              {rows.length > 300 && <p class="dim">The 300 types with the most machines of {count(rows.length)}.</p>}
              {out.length === 0 && rows.length > 0 && <p class="dim">No provider is out of anything.</p>}
            </>
          );
        }}
      </Shown>
    </Section>
  );
}

function Room({ c, type, zone, now }: { c: Cell | undefined; type: string; zone: string; now: number }) {
  if (!c) return <span class="dim">–</span>;
  return (
    <>
      {c.machines > 0 && (
        <>
          <p>
            <Link href={link("/fleet/machines", { type, zone })}>{count(c.machines)}</Link> <span class="dim">{dollars(c.cost)}/h</span>
          </p>
          <Bar
            thin
            label={`${type} in ${zone}, by cost`}
            parts={Object.entries(c.states).map(([k, v]) => ({
              label: plainName(k),
              size: v,
              tone: stateTone[plainName(k)] ?? "dim",
              text: dollars(v),
            }))}
          />
        </>
      )}
      {c.out.map((o) => (
        <div key={o.pool}>
          <Mark
            shape="▲"
            tone="short"
            word={`out of stock, ${capacityName(o.capacityType)}; again in ${span(Number(o.retryAtUnixNanos / 1_000_000n) - now)}`}
          />
        </div>
      ))}
    </>
  );
}

function Hints({ ids }: { ids: string[] }) {
  const hints = useAnswer((s) => each(ids, (id) => shard.listHints({ pageSize: 500 }, at(id, s))), [ids.join()], 5000);
  return (
    <Section
      title="Capacity that is announced to clusters"
      end={<Ask rpc="ShardRead/ListHints" target={ids[0]} cli="bigfleet get hints" />}
    >
      <Shown
        of={hints}
        empty={(a) => a.got.every(([, x]) => x.hints.length === 0) && a.missing.length === 0 && <Empty>No hint has been sent yet.</Empty>}
      >
        {(a) => {
          const rows = a.got.flatMap(([, x]) => x.hints);
          return (
            <>
              <Missing of={a.missing} />
              <Table
                label="Hints"
                rows={rows.slice(0, 1000)}
                id={(h) => `${h.clusterId} ${h.profileFingerprint}`}
                columns={[
                  { head: "Cluster", cell: (h) => <Name>{h.clusterId}</Name> },
                  { head: "Machines with", cell: (h) => <Like h={h} /> },
                  { head: "Likely to be had", num: true, cell: (h) => count(h.availableCount) },
                  {
                    head: "Confidence",
                    cell: (h) => (
                      <Mark
                        shape={h.confidence === "NONE" ? "▲" : h.confidence === "LOW" ? "◇" : "●"}
                        word={h.confidence.toLowerCase()}
                        tone={h.confidence === "NONE" ? "short" : h.confidence === "LOW" ? "held" : "met"}
                      />
                    ),
                  },
                  { head: "$/h", num: true, cell: (h) => (h.costPerHour ? dollars(h.costPerHour) : "–") },
                  { head: "Why", cell: (h) => <Sentence>{h.reason}</Sentence> },
                ]}
              />
            </>
          );
        }}
      </Shown>
    </Section>
  );
}
/** The shape of a hint: what its machines must have. */
const Like = ({ h }: { h: CapacityHint }) => (
  <bdi>
    {[amounts(h.resources?.resources), ...h.requirements.map((r) => requirement(r).replace(/^[^ ]*\//, ""))].filter(Boolean).join("; ") || (
      <span class="dim">any shape</span>
    )}
  </bdi>
);
