// Money: where does it go?
import type { GetCostResponse } from "@bigfleet/api/v1alpha1/shardread";
import { Link } from "wouter-preact";
import { at, shard } from "../api";
import { Chart, type Series } from "../design/chart";
import { Ask, Bar, Choice, Empty, Figure, Name, Section, Shown, Table, Waiting } from "../design/parts";
import { each, Missing, useShards } from "../fleet";
import { amounts, count, dollars, plainName, summed } from "../format";
import { useAnswer } from "../live";
import { link, momentOf, useQuery } from "../url";
import { WhatIf } from "./whatif";
import { gather, named, idle } from "./costs";
import { Waste } from "./waste";

const dims: [string, string][] = [
  ["cluster", "cluster"],
  ["capacity", "capacity type"],
  ["type", "machine type"],
  ["zone", "zone"],
  ["provider", "provider"],
  ["priority", "priority"],
  ["penalty", "penalty class"],
];

const spans: [string, string][] = [
  ["900", "15 minutes"],
  ["3600", "hour"],
  ["21600", "6 hours"],
  ["86400", "day"],
];

const tabs: [string, string][] = [
  ["cost", "Where it goes"],
  ["waste", "Waste"],
  ["whatif", "What if"],
];

/** What a group is called in the filters of the machines table. */
const filterOf: Record<string, string> = { cluster: "cluster", type: "type", zone: "zone", provider: "provider" };

const classes: Record<string, string> = { bare_metal: "1", reserved: "2", on_demand: "3", spot: "4" };

const spend = "sum(bigfleet_shard_spend_dollars_per_hour)";

const metrics: Record<string, string> = {
  cluster: "sum by (cluster) (bigfleet_shard_cluster_spend_dollars_per_hour)",
  capacity: "sum by (capacity_type) (bigfleet_shard_spend_dollars_per_hour)",
};

export function Money({ tab }: { tab: string }) {
  return (
    <div class="page">
      <div class="head">
        <h1>Money</h1>
      </div>
      <nav class="tabs" aria-label="Money">
        {tabs.map(([k, t]) => (
          <Link key={k} href={link(`/money/${k}`)} aria-current={k === tab ? "page" : undefined}>
            {t}
          </Link>
        ))}
      </nav>
      {tab === "waste" ? <Waste /> : tab === "whatif" ? <WhatIf /> : <Where />}
    </div>
  );
}

function Where() {
  const [q, change] = useQuery();
  const ids = useShards();
  const by = dims.some(([d]) => d === q.by) ? (q.by as string) : "cluster";
  const moment = momentOf(q);
  const over = Number(q.span ?? 3600);
  const now = useAnswer(
    ids.length && !moment
      ? (s) => each(ids, (id) => shard.getCost({ groupBy: by === "cluster" ? ["cluster"] : ["cluster", by], separate: true }, at(id, s)))
      : undefined,
    [ids.join(), by, moment],
    3000,
  );
  const past = useAnswer(
    ids.length
      ? (s) => {
          const until = moment || BigInt(Date.now()) * 1_000_000n;
          return each(ids, (id) =>
            shard.getCost(
              { groupBy: [by], sinceUnixNanos: until - BigInt(over) * 1_000_000_000n, untilUnixNanos: until, points: 120 },
              at(id, s),
            ),
          );
        }
      : undefined,
    [ids.join(), by, over, moment],
    moment ? 0 : 15000,
  );
  if (ids.length === 0) return <Waiting />;
  const shown = moment ? past : now;
  return (
    <>
      <div class="filters">
        <Choice label="By" value={by} options={dims} onChange={(v) => change({ by: v })} />
        <Choice label="Over the last" value={String(over)} options={spans} onChange={(v) => change({ span: v })} />
        <Ask
          rpc="ShardRead/GetCost"
          target={ids[0]}
          body={{ groupBy: [by] }}
          cli={`bigfleet cost --by ${by}`}
          prom={metrics[by] ?? spend}
        />
      </div>
      <Shown
        of={shown}
        empty={(a) =>
          gather(a.got).length === 0 &&
          a.missing.length === 0 && <Empty>Nothing costs money {moment ? "in what the console remembers of that time" : "yet"}.</Empty>
        }
      >
        {(a) => {
          const rows = gather(a.got).filter((r) => r.machines > 0);
          const clusters = moment && by !== "cluster" ? [] : gather(a.got, moment ? -1 : 0);
          const unused = clusters.reduce((n, r) => n + r.unused, 0);
          const [requested, unmet, provided] = [
            clusters.reduce((n, r) => summed(n, r.requested), {}),
            clusters.reduce((n, r) => summed(n, r.unmet), {}),
            clusters.reduce((n, r) => summed(n, r.provided), {}),
          ];
          const total = rows.reduce((n, r) => n + r.cost, 0);
          const states = new Map<string, number>();
          for (const r of rows)
            for (const [k, v] of Object.entries(r.states)) states.set(plainName(k), (states.get(plainName(k)) ?? 0) + v);
          const part = (...names: string[]) => names.reduce((n, k) => n + (states.get(k) ?? 0), 0);
          const busy = part("configured");
          return (
            <>
              <Missing of={a.missing} />
              <div class="figures">
                <Figure
                  label={moment ? "Spend then" : "Spend now"}
                  ask={{ rpc: "ShardRead/GetCost", target: ids[0], cli: "bigfleet cost", prom: spend }}
                >
                  {dollars(total)}
                  <span class="dim"> /h</span>
                </Figure>
                <Figure label="At this rate, a month">{dollars(total * 730)}</Figure>
                <Figure
                  label="In use"
                  tone="met"
                  href={link("/fleet/machines", { state: "5" })}
                  ask={{
                    cli: "bigfleet get machines --state configured",
                    prom: 'sum(bigfleet_shard_spend_dollars_per_hour{state="Configured"})',
                  }}
                >
                  {dollars(busy)}
                  <span class="dim"> /h</span>
                </Figure>
                <Figure
                  label="Not in use"
                  ask={{ cli: "bigfleet cost --waste", prom: idle }}
                  href={link("/money/waste")}
                  tone={total - busy > 0.0001 ? "held" : undefined}
                >
                  {dollars(total - busy)}
                  <span class="dim"> /h</span>
                </Figure>
                <Figure label="Machines that cost money" href={link("/fleet/machines")}>
                  {count(rows.reduce((n, r) => n + r.machines, 0))}
                </Figure>
              </div>
              <Bar
                legend
                label="Spend"
                parts={[
                  {
                    label: clusters.length ? "requested" : "in use",
                    size: busy - unused,
                    tone: "met",
                    text: dollars(busy - unused),
                    href: link("/demand"),
                  },
                  { label: "bought and not requested", size: unused, tone: "money", text: dollars(unused), href: link("/money/waste") },
                  {
                    label: "on its way",
                    size: part("creating", "configuring"),
                    tone: "way",
                    text: dollars(part("creating", "configuring")),
                  },
                  { label: "idle", size: part("idle"), tone: "idle", text: dollars(part("idle")), href: link("/money/waste") },
                  { label: "leaving", size: part("draining", "deleting"), tone: "held", text: dollars(part("draining", "deleting")) },
                  { label: "failed", size: part("failed"), tone: "short", text: dollars(part("failed")), href: link("/money/waste") },
                ]}
              />
              {Object.keys(provided).length > 0 && (
                <p class="dim">
                  Clusters request {amounts(requested) || "nothing"}
                  {amounts(unmet) && `, of which no machine covers ${amounts(unmet)}`}. Machines that serve them provide {amounts(provided)}
                  . <Ask rpc="ShardRead/GetCost" target={ids[0]} body={{ groupBy: ["cluster"] }} cli="bigfleet cost --waste" />
                </p>
              )}
              <Section title={`Over time, by ${named("", dims.find(([d]) => d === by)?.[1] ?? by)}`}>
                <Shown of={past}>
                  {(p) => <Over answers={p.got} by={by} onPick={(t) => change({ at: new Date(t * 1000).toISOString() }, true)} />}
                </Shown>
              </Section>
              <Section title={`By ${dims.find(([d]) => d === by)?.[1]}`}>
                <Table
                  label="Cost"
                  rows={rows.slice(0, 200)}
                  id={(r) => r.group}
                  columns={[
                    {
                      head: dims.find(([d]) => d === by)?.[1] ?? by,
                      cell: (r) => {
                        const f = by === "capacity" ? ["class", classes[named(by, r.group).replace(" ", "_")]] : [filterOf[by], r.group];
                        return f[0] && f[1] ? (
                          <Link href={link("/fleet/machines", { [f[0]]: f[1] })}>
                            <Name>{named(by, r.group)}</Name>
                          </Link>
                        ) : (
                          <Name>{named(by, r.group)}</Name>
                        );
                      },
                    },
                    {
                      head: "Share",
                      cell: (r) => (
                        <Bar
                          thin
                          label={named(by, r.group)}
                          total={rows[0]?.cost ?? 1}
                          parts={Object.entries(r.states).map(([k, v]) => ({
                            label: plainName(k),
                            size: v,
                            tone:
                              plainName(k) === "configured"
                                ? "met"
                                : plainName(k) === "idle"
                                  ? "idle"
                                  : plainName(k) === "failed"
                                    ? "short"
                                    : "way",
                            text: dollars(v),
                          }))}
                        />
                      ),
                    },
                    { head: "$/h", num: true, cell: (r) => dollars(r.cost) },
                    { head: "of all", num: true, cell: (r) => `${total ? ((100 * r.cost) / total).toFixed(0) : 0} %` },
                    { head: "$/month", num: true, cell: (r) => dollars(r.cost * 730) },
                    { head: "Machines", num: true, cell: (r) => count(r.machines) },
                    {
                      head: "",
                      cell: (r) => (by === "cluster" && r.group ? <Link href={link("/demand", { cluster: r.group })}>its needs</Link> : ""),
                    },
                  ]}
                />
              </Section>
            </>
          );
        }}
      </Shown>
    </>
  );
}

/** Stacked cost; small groups are one. */
function Over({ answers, by, onPick }: { answers: [string, GetCostResponse][]; by: string; onPick: (t: number) => void }) {
  const times = [...new Set(answers.flatMap(([, r]) => r.points.map((p) => Number(p.atUnixNanos / 1_000_000_000n))))].sort((a, b) => a - b);
  if (times.length < 2)
    return (
      <Empty>
        The console has watched for too short a time. It remembers costs since it started, for at most a day;{" "}
        <code>bigfleet cost --record</code> reads older ones from a shard's decision log.
      </Empty>
    );
  const place = new Map(times.map((t, i) => [t, i]));
  const sums = new Map<string, number[]>();
  for (const [, r] of answers)
    for (const p of r.points)
      for (const row of p.rows) {
        const g = named(by, row.group.join(" · "));
        const v = sums.get(g) ?? new Array<number>(times.length).fill(0);
        const i = place.get(Number(p.atUnixNanos / 1_000_000_000n)) ?? 0;
        v[i] = (v[i] ?? 0) + Object.values(row.costPerHourByState).reduce((n, x) => n + x, 0);
        sums.set(g, v);
      }
  const sorted = [...sums].sort((a, b) => b[1].reduce((n, x) => n + x, 0) - a[1].reduce((n, x) => n + x, 0));
  const series: Series[] = sorted.slice(0, 5).map(([label, values]) => ({ label, values }));
  if (sorted.length > 5)
    series.push({
      label: `${sorted.length - 5} others`,
      values: times.map((_, i) => sorted.slice(5).reduce((n, [, v]) => n + (v[i] ?? 0), 0)),
    });
  return (
    <>
      <Chart
        stacked
        label="Cost over time"
        times={times}
        series={series}
        format={(n) => `${dollars(n)}/h`}
        onPick={(from) => onPick(from)}
      />
      <p class="dim">Drag over the chart to see every page as it was at that moment.</p>
    </>
  );
}
