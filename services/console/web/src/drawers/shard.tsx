// One shard: its cycle, its rails, its providers, what holds it back.
import { Link } from "wouter-preact";
import { Ask, Bar, Empty, Facts, Mark, Section, Sentence, Table } from "../design/parts";
import { useFleet } from "../fleet";
import { byState, capacityName, clock, count, dollars, plainName, since, span, stateNumber, stateTone } from "../format";
import { BackoffOrder, PauseOrder, ResumeOrder } from "../orders/orders";
import { link, open, opened } from "../url";
import { Sheet } from "./sheet";

export function ShardDrawer({ id }: { id: string }) {
  const flow = useFleet();
  const s = flow.value?.shards.find((x) => x.shardId === id);
  const source = flow.value?.sources.find((x) => x.source === `shard/${id}`);
  return (
    <Sheet
      title={id}
      kind="shard"
      end={
        <Ask
          rpc="ShardRead/GetStatus"
          target={id}
          cli={`bigfleet status --shard ${id}`}
          prom="max by (instance) (bigfleet_shard_needs_unmet)"
        />
      }
    >
      {source?.error && (
        <p class="note bad" role="status">
          This is {since(source.lastDataAtUnixNanos)} old. <Sentence>{source.error}</Sentence>
        </p>
      )}
      {!s && <Empty>It has not answered yet.</Empty>}
      {s && (
        <>
          <p>
            {s.ready ? <Mark shape="●" word="ready" tone="met" /> : <Mark shape="▲" word="not ready" tone="short" />}{" "}
            {s.superseded && <Mark shape="▲" word="superseded by another process" tone="short" />}{" "}
            {s.dryRun && <Mark shape="◇" word="dry run" tone="held" />}
            <br />
            {s.notReadyReasons.map((r) => (
              <Sentence key={r}>{r} </Sentence>
            ))}
          </p>
          {s.pauses.map((p) => (
            <p class="note warn" key={p.pauseId}>
              Paused{p.kinds.length ? ` (${p.kinds.length} kinds)` : ""}
              {p.clusterId && ` for ${p.clusterId}`} by {p.actor || "an unnamed person"} since {clock(p.createdAtUnixNanos)}:{" "}
              <Sentence>{p.reason}</Sentence> {p.pauseId !== "flag" && <ResumeOrder shardId={id} pause={p} />}
            </p>
          ))}
          <p class="filters">
            <PauseOrder shardId={id} />
          </p>
          {s.warnings.map((w) => (
            <p class="note warn" key={w}>
              <Sentence>{w}</Sentence>
            </p>
          ))}
          <Facts
            of={[
              ["Cycle", `${s.cycle}, took ${span(Number(s.cycleDurationNanos) / 1e6)}, ended ${since(s.cycleAtUnixNanos)} ago`],
              [
                "Needs",
                <Link href={link("/demand", { shard: id })}>
                  {count(s.needs)}, {count(s.unsatisfiedNeeds)} waiting
                </Link>,
              ],
              ["Sessions", count(s.sessions)],
              ["Silent clusters", s.silentClusters || ""],
              ["Cost", `${dollars(s.costPerHour)}/h`],
              ["Reclaim tokens", s.reclaimTokens.toFixed(1)],
              [
                "In flight",
                Object.entries(s.inFlight)
                  .map(([k, n]) => `${plainName(k)} ${n}`)
                  .join(", "),
              ],
              [
                "Waiting",
                Object.entries(s.waiting)
                  .map(([k, n]) => `${plainName(k)} ${n}`)
                  .join(", "),
              ],
              ["Started", `${since(s.startedAtUnixNanos)} ago, epoch ${s.shardEpoch}`],
              ["Version", s.version],
              [
                "Coordinator",
                s.coordinator &&
                  `${s.coordinator.address || "none"}, term ${s.coordinator.term}${s.coordinator.lastError ? `: ${s.coordinator.lastError}` : ""}`,
              ],
              ["Notice", s.coordinator?.notice],
            ]}
          />
          <Section title="Machines">
            <Bar
              legend
              label="Machines"
              parts={byState(s.machinesByState).map(([k, n]) => ({
                label: plainName(k),
                size: n,
                tone: stateTone[plainName(k)] ?? "dim",
                href: link("/fleet/machines", { shard: id, state: stateNumber(k) }),
              }))}
            />
          </Section>
          <Section title="Providers">
            <Table
              label="Providers"
              rows={s.providers}
              id={(p) => p.name}
              columns={[
                {
                  head: "Provider",
                  cell: (p) => (
                    <span class="filters">
                      <Link href={link("/fleet/machines", { provider: p.name })}>{p.name}</Link>
                      <PauseOrder shardId={id} provider={p.name} />
                      <BackoffOrder when={p.breaker !== "closed"} shardId={id} provider={p.name} />
                    </span>
                  ),
                },
                { head: "Breaker", cell: (p) => <span class={p.breaker === "closed" ? "met" : "short"}>{p.breaker}</span> },
                { head: "Machines", num: true, cell: (p) => count(p.machines) },
                {
                  head: "Inventory age",
                  num: true,
                  cell: (p) => (p.inventoryAgeSeconds < 0 ? "never" : span(p.inventoryAgeSeconds * 1000)),
                },
                { head: "Last failure", cell: (p) => <Sentence>{p.lastError}</Sentence> },
              ]}
            />
          </Section>
          {s.providers.some((p) => p.stockedOutPools.length) && (
            <Section title="Out of stock">
              <Table
                label="Out of stock"
                rows={s.providers.flatMap((p) => p.stockedOutPools)}
                id={(p) => p.pool}
                columns={[
                  { head: "Type", cell: (p) => p.instanceType },
                  { head: "Zone", cell: (p) => p.zone },
                  { head: "Class", cell: (p) => capacityName(p.capacityType) },
                  { head: "Next try", cell: (p) => clock(p.retryAtUnixNanos) },
                  { head: "Failures", num: true, cell: (p) => p.failures },
                ]}
              />
            </Section>
          )}
          {s.drains.length > 0 && (
            <Section title="Drains">
              <Table
                label="Drains"
                rows={s.drains}
                id={(d) => d.machineId}
                columns={[
                  { head: "Machine", cell: (d) => <Link href={opened(open.machine(d.machineId, id))}>{d.machineId}</Link> },
                  { head: "Cluster", cell: (d) => d.clusterId },
                  { head: "Pods left", num: true, cell: (d) => d.podsLeft },
                  { head: "Budgets that refuse", cell: (d) => d.blockingBudgets.join(", ") },
                  { head: "Cordoned because", cell: (d) => d.reason },
                ]}
              />
            </Section>
          )}
        </>
      )}
    </Sheet>
  );
}
