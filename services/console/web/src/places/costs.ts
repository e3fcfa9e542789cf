// Rows of costs that several shards answer.
import type { GetCostResponse } from "@bigfleet/api/v1alpha1/shardread";
import { summed } from "../format";

export type Amounts = { [resource: string]: string };

/** Requested, provided, unused and stuck are known of clusters only. */
export type Row = {
  group: string;
  cost: number;
  machines: number;
  states: Record<string, number>;
  requested: Amounts;
  unmet: Amounts;
  provided: Amounts;
  serving: number;
  unused: number;
  stuck: number;
};

export function gather(points: [string, GetCostResponse][], at = -1): Row[] {
  const rows = new Map<string, Row>();
  for (const [, r] of points)
    for (const c of r.points.at(at)?.rows ?? []) {
      const group = c.group.join(" · ");
      const row = rows.get(group) ?? {
        group,
        cost: 0,
        machines: 0,
        states: {},
        requested: {},
        unmet: {},
        provided: {},
        serving: 0,
        unused: 0,
        stuck: 0,
      };
      row.requested = summed(row.requested, c.requested);
      row.unmet = summed(row.unmet, c.unmet);
      row.provided = summed(row.provided, c.provided);
      row.serving += c.servingPerHour;
      row.unused += c.unusedPerHour;
      row.stuck += c.stuckPerHour;
      for (const [k, v] of Object.entries(c.costPerHourByState)) {
        row.cost += v;
        row.states[k] = (row.states[k] ?? 0) + v;
      }
      row.machines += c.machines;
      rows.set(group, row);
    }
  return [...rows.values()].sort((a, b) => b.cost - a.cost);
}

export const named = (by: string, g: string) =>
  g === ""
    ? by === "cluster"
      ? "no cluster"
      : "none"
    : by === "capacity"
      ? g.toLowerCase().replace("capacity_type_", "").replaceAll("_", " ")
      : g;

/** Dollars an hour of machines that serve no cluster, as a metric. */
export const idle = 'sum(bigfleet_shard_spend_dollars_per_hour{state!="Configured"})';
