// Today's spend as a line.
import type { GetCostResponse } from "@bigfleet/api/v1alpha1/shardread";
import { at, shard } from "../api";
import { Spark } from "../design/spark";
import { each, useShards } from "../fleet";
import { dollars } from "../format";
import { useAnswer } from "../live";

/** Spend since midnight, or since the console began to note it. */
export function Today() {
  const ids = useShards();
  const answer = useAnswer(
    ids.length
      ? (s) => {
          const midnight = BigInt(new Date().setHours(0, 0, 0, 0)) * 1_000_000n;
          return each(ids, (id) =>
            shard.getCost(
              { groupBy: ["capacity"], sinceUnixNanos: midnight, untilUnixNanos: BigInt(Date.now()) * 1_000_000n, points: 96 },
              at(id, s),
            ),
          );
        }
      : undefined,
    [ids.join()],
    60000,
  );
  const values = spendOf(answer.value?.got.map(([, r]) => r) ?? []);
  if (values.length < 2) return null;
  return (
    <Spark
      values={values}
      label={`Spend today: ${dollars(values[0] ?? 0)} an hour at first, ${dollars(Math.max(...values))} at most, ${dollars(values.at(-1) ?? 0)} now`}
    />
  );
}

/** Shards are noted at different times: at each, what every shard cost last adds up. */
export function spendOf(shards: GetCostResponse[]): number[] {
  const notes = shards
    .flatMap((r, of) =>
      r.points.map((p) => ({
        of,
        when: p.atUnixNanos,
        cost: p.rows.reduce((n, row) => n + Object.values(row.costPerHourByState).reduce((m, x) => m + x, 0), 0),
      })),
    )
    .sort((x, y) => (x.when < y.when ? -1 : 1));
  const last = new Map<number, number>();
  const all = shards.filter((r) => r.points.length > 0).length;
  const out: number[] = [];
  for (const n of notes) {
    last.set(n.of, n.cost);
    if (last.size === all) out.push([...last.values()].reduce((a, b) => a + b, 0));
  }
  return out;
}
