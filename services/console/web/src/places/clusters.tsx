import type { ClusterView } from "@bigfleet/api/v1alpha1/shardread";
import { Link } from "wouter-preact";
import { at, shard } from "../api";
import { Ask, Bar, Empty, Mark, Name, Shown, Table, Text, Waiting } from "../design/parts";
import { each, Missing, useFleet, useShards } from "../fleet";
import { byState, count, dollars, plainName, since, stateTone } from "../format";
import { useAnswer, useNow } from "../live";
import { link, open, opened, useQuery } from "../url";

export function Clusters() {
  const ids = useShards();
  const [q, change] = useQuery();
  const answer = useAnswer(
    ids.length
      ? (s) =>
          each(ids, async (id) => {
            const out: ClusterView[] = [];
            let pageToken = "";
            do {
              const page = await shard.listClusters({ pageSize: 1000, pageToken }, at(id, s));
              out.push(...page.clusters);
              pageToken = page.nextPageToken;
            } while (pageToken && out.length < 10000);
            return out;
          })
      : undefined,
    [ids.join()],
    3000,
  );
  if (ids.length === 0) return <Waiting />;
  return (
    <>
      <div class="filters">
        <Text label="Name has" value={q.cluster ?? ""} onChange={(v) => change({ cluster: v })} />
        <Ask rpc="ShardRead/ListClusters" target={ids[0]} cli="bigfleet get clusters" prom="sum(bigfleet_shard_active_sessions)" />
      </div>
      <Shown
        of={answer}
        empty={(a) =>
          a.got.every(([, x]) => x.length === 0) &&
          a.missing.length === 0 && (
            <Empty>
              No cluster is connected. The operator of a cluster dials its shard; <code>bigfleet doctor cluster</code> says what is missing.
            </Empty>
          )
        }
      >
        {(a) => {
          const rows = a.got
            .flatMap(([id, cs]) => cs.map((c) => ({ id, c })))
            .filter(({ c }) => !q.cluster || c.clusterId.includes(q.cluster))
            .slice(0, 1000);
          return (
            <>
              <Missing of={a.missing} />
              <Table
                label="Clusters"
                rows={rows}
                id={(r) => `${r.id} ${r.c.clusterId}`}
                columns={[
                  {
                    head: "Cluster",
                    cell: ({ id, c }) => (
                      <Link href={opened(open.cluster(id, c.clusterId))}>
                        <Name>{c.clusterId}</Name>
                      </Link>
                    ),
                  },
                  {
                    head: "Session",
                    cell: ({ c }) =>
                      c.connected ? (
                        <Mark shape="●" word={`connected ${since(c.connectedSinceUnixNanos)}`} tone="met" />
                      ) : (
                        <Mark
                          shape="▲"
                          word={c.retired ? "retired" : c.silent ? "silent" : "not connected"}
                          tone={c.retired ? "idle" : "short"}
                        />
                      ),
                  },
                  { head: "Report", num: true, cell: ({ c }) => `${since(c.lastRollupAtUnixNanos)} ago` },
                  {
                    head: "Needs",
                    num: true,
                    cell: ({ c }) => <Link href={link("/demand", { cluster: c.clusterId })}>{count(c.needs)}</Link>,
                  },
                  {
                    head: "Waiting",
                    num: true,
                    cell: ({ c }) => <span class={c.unsatisfiedNeeds ? "short" : "dim"}>{count(c.unsatisfiedNeeds)}</span>,
                  },
                  {
                    head: "Machines",
                    cell: ({ c }) => (
                      <Bar
                        thin
                        label={c.clusterId}
                        parts={byState(c.machinesByState).map(([k, n]) => ({
                          label: plainName(k),
                          size: n,
                          tone: stateTone[plainName(k)] ?? "dim",
                        }))}
                      />
                    ),
                  },
                  { head: "", num: true, cell: ({ c }) => count(Object.values(c.machinesByState).reduce((n, x) => n + x, 0)) },
                  { head: "$/h", num: true, cell: ({ c }) => dollars(c.costPerHour) },
                  { head: "Shard", cell: ({ id }) => <Link href={opened(open.shard(id))}>{id}</Link> },
                ]}
              />
            </>
          );
        }}
      </Shown>
    </>
  );
}

export function Drains() {
  const fleet = useFleet();
  const now = useNow();
  const rows = (fleet.value?.shards ?? []).flatMap((s) => s.drains.map((d) => ({ s: s.shardId, d })));
  if (!fleet.value) return <Waiting />;
  const ask = (
    <p class="filters">
      <Ask
        rpc="ShardRead/GetStatus"
        target={fleet.value.shards[0]?.shardId}
        cli="bigfleet get drains"
        prom='sum(bigfleet_shard_inventory_machines{state="Draining"})'
      />
    </p>
  );
  if (rows.length === 0)
    return (
      <>
        {ask}
        <Empty>No node is being drained.</Empty>
      </>
    );
  return (
    <>
      {ask}
      <Table
        label="Drains"
        rows={rows}
        id={(r) => `${r.s} ${r.d.machineId}`}
        columns={[
          {
            head: "Machine",
            cell: (r) => (
              <Link href={opened(open.machine(r.d.machineId, r.s))}>
                <Name>{r.d.machineId}</Name>
              </Link>
            ),
          },
          {
            head: "Cluster",
            cell: (r) => (
              <Link href={opened(open.cluster(r.s, r.d.clusterId))}>
                <Name>{r.d.clusterId}</Name>
              </Link>
            ),
          },
          { head: "Since", num: true, cell: (r) => since(r.d.startedAtUnixNanos, now) },
          {
            head: "Grace ends in",
            num: true,
            cell: (r) => (r.d.deadlineUnixNanos ? since(BigInt(now) * 1_000_000n, Number(r.d.deadlineUnixNanos / 1_000_000n)) : "–"),
          },
          { head: "Pods left", num: true, cell: (r) => count(r.d.podsLeft) },
          { head: "Budgets that refuse", cell: (r) => r.d.blockingBudgets.join(", ") || <span class="dim">none</span> },
          { head: "Cordoned because", cell: (r) => r.d.reason },
        ]}
      />
    </>
  );
}
