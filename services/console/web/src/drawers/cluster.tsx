// One cluster: its session, its needs, what was done for it.
import { Link } from "wouter-preact";
import { at, shard } from "../api";
import { Ask, Bar, Empty, Facts, Mark, Section, Sentence, Shown, Timeline } from "../design/parts";
import { byState, clock, count, dollars, plainName, since, stateNumber, stateTone } from "../format";
import { useAnswer } from "../live";
import { event, once } from "../records";
import { AcceptOrder, BackoffOrder, PauseOrder } from "../orders/orders";
import { link } from "../url";
import { Sheet } from "./sheet";

export function ClusterDrawer({ shardId, id }: { shardId: string; id: string }) {
  const answer = useAnswer((s) => shard.listClusters({ clusterId: id }, at(shardId, s)), [shardId, id], 3000);
  const past = useAnswer(
    (s) => shard.getMachineHistory({ subject: { case: "clusterId", value: id }, pageSize: 60 }, at(shardId, s)),
    [shardId, id],
    5000,
  );
  return (
    <Sheet
      title={id}
      kind="cluster"
      end={<Ask rpc="ShardRead/ListClusters" target={shardId} body={{ clusterId: id }} cli={`bigfleet explain cluster/${id}`} />}
    >
      <Shown of={answer} empty={(a) => a.clusters.length === 0 && <Empty>Shard {shardId} does not know this cluster now.</Empty>}>
        {(a) => {
          const c = a.clusters[0];
          if (!c) return null;
          return (
            <>
              <p>
                {c.connected ? (
                  <Mark shape="●" word="connected" tone="met" />
                ) : (
                  <Mark shape="▲" word={c.silent ? "silent" : "not connected"} tone="short" />
                )}{" "}
                <span class="dim">
                  {c.connected
                    ? `for ${since(c.connectedSinceUnixNanos)}, last report ${since(c.lastRollupAtUnixNanos)} ago`
                    : "Its nodes stay as they are."}
                </span>
                {c.lastRollupReason && (
                  <>
                    <br />
                    <Sentence tone="held">{c.lastRollupReason}</Sentence>
                  </>
                )}
              </p>
              <Facts
                of={[
                  [
                    "Needs",
                    <Link href={link("/demand", { cluster: id })}>
                      {count(c.needs)}, {count(c.unsatisfiedNeeds)} waiting
                    </Link>,
                  ],
                  ["Cost", <Link href={link("/money", { by: "cluster" })}>{dollars(c.costPerHour)}/h</Link>],
                  ["Machines may be taken back", c.gateOpen ? "yes" : "not before its first report"],
                  ["Held reports", c.heldCount || ""],
                  ["Backoffs", c.backoffs.join("; ")],
                  ["Operator", c.operatorVersion],
                  ["Retired", c.retired && "by a person"],
                ]}
              />
              <p class="filters">
                <PauseOrder shardId={shardId} clusterId={id} />
                <BackoffOrder when={c.backoffs.length > 0} shardId={shardId} clusterId={id} />
                <AcceptOrder when={c.heldCount > 0} shardId={shardId} clusterId={id} />
              </p>
              <Section title={<Link href={link("/fleet/machines", { cluster: id })}>Machines</Link>}>
                <Bar
                  legend
                  label="Machines"
                  parts={byState(c.machinesByState).map(([k, n]) => ({
                    label: plainName(k),
                    size: n,
                    tone: stateTone[plainName(k)] ?? "dim",
                    href: link("/fleet/machines", { cluster: id, state: stateNumber(k) }),
                  }))}
                />
              </Section>
            </>
          );
        }}
      </Shown>
      <Section title="What was done for it" end={<span class="dim">newest first</span>}>
        <Shown of={past} empty={(p) => p.records.length === 0 && <Empty>Nothing is recorded.</Empty>}>
          {(p) => <Timeline events={once(p.records).map(event)} />}
        </Shown>
      </Section>
      <p class="dim">
        Times are those of shard {shardId}; it is {clock(BigInt(Date.now()) * 1_000_000n)} here.
      </p>
    </Sheet>
  );
}
