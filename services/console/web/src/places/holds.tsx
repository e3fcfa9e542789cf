import { many } from "../format";
import { ResumeOrder } from "../orders/orders";
import { open, opened } from "../url";

export type Hold = { key: string; word: string; text: string; href: string; bad: boolean; order?: preact.ComponentChildren };

export function holdsBack(shards: import("@bigfleet/api/v1alpha1/shardread").GetStatusResponse[]): Hold[] {
  const out: Hold[] = [];
  for (const s of shards) {
    const href = opened(open.shard(s.shardId));
    const add = (key: string, word: string, text: string, bad = false, order?: preact.ComponentChildren) =>
      out.push({ key: `${s.shardId} ${key}`, word, text, href, bad, order });
    for (const r of s.notReadyReasons) add(r, "not ready", `${s.shardId}: ${r}`, true);
    if (s.dryRun) add("dry", "dry run", `${s.shardId} decides and does nothing`);
    for (const p of s.pauses)
      add(
        p.pauseId,
        "paused",
        `${s.shardId}${p.clusterId ? `, cluster ${p.clusterId}` : ""} by ${p.actor || "an unnamed person"}: ${p.reason}`,
        false,
        p.pauseId !== "flag" && <ResumeOrder shardId={s.shardId} pause={p} />,
      );
    for (const p of s.providers) {
      if (p.breaker !== "closed" && p.breaker)
        add(`b ${p.name}`, "provider", `${p.name} (${s.shardId}), breaker ${p.breaker}: ${p.lastError}`, p.breaker === "open");
      if (p.removalsHeld)
        add(
          `r ${p.name}`,
          "removals held",
          `${many(p.removalsHeld, "machine")} of ${p.name} vanished at once; BigFleet keeps them in its list until a person decides`,
        );
      if (p.stockedOutPools.length)
        add(
          `o ${p.name}`,
          "out of stock",
          `${p.stockedOutPools
            .slice(0, 4)
            .map((x) => `${x.instanceType} in ${x.zone}`)
            .join(", ")}${p.stockedOutPools.length > 4 ? ` and ${p.stockedOutPools.length - 4} more` : ""} (${p.name})`,
        );
    }
    for (const d of s.drains)
      if (d.blockingBudgets.length)
        add(
          `d ${d.machineId}`,
          "drain blocked",
          `${d.machineId}: ${d.blockingBudgets.join(", ")} ${d.blockingBudgets.length === 1 ? "refuses" : "refuse"}`,
        );
    if (s.silentClusters)
      add(
        "silent",
        "silent",
        `${many(s.silentClusters, "cluster")} with machines ${s.silentClusters === 1 ? "has" : "have"} not reported for a long time`,
        true,
      );
  }
  return out;
}
