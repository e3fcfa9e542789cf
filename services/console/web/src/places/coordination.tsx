// What the coordinator knows: its group, who owns which machines, and moves.
import { Move_State } from "@bigfleet/api/v1alpha1/coordinatoradmin";
import type { WatchMovesResponse } from "@bigfleet/api/v1alpha1/console";
import type { Move } from "@bigfleet/api/v1alpha1/coordinatoradmin";
import { MoveTier } from "@bigfleet/api/v1alpha1/coordinator";
import { Link } from "wouter-preact";
import { admin, core, live } from "../api";
import { Ask, Empty, Facts, Mark, Name, Section, Sentence, Shown, Table, Waiting } from "../design/parts";
import { clock, count, plainName, since, span } from "../format";
import { useAnswer, useFlow } from "../live";
import { open, opened } from "../url";

export function Coordinator() {
  const status = useAnswer((s) => admin.getCoordinatorStatus({}, { signal: s }), [], 2000);
  const stuck = useAnswer((s) => admin.listInstructions({}, { signal: s }), [], 5000);
  const audit = useAnswer((s) => admin.listAudit({ pageSize: 50 }, { signal: s }), [], 5000);
  return (
    <>
      <Shown of={status}>
        {(c) => (
          <>
            <p>
              {c.role === "leader" ? (
                <Mark shape="●" word={`${c.nodeId} leads`} tone="met" />
              ) : (
                <Mark shape="◇" word={`${c.nodeId} is ${c.role}`} tone="held" />
              )}{" "}
              <span class="dim">
                Raft term {String(c.raftTerm)}, fencing term {String(c.fencingTerm)}
              </span>{" "}
              <Ask
                rpc="CoordinatorAdmin/GetCoordinatorStatus"
                cli="bigfleet raft status"
                prom="max by (instance) (bigfleet_coordinator_is_leader)"
              />
            </p>
            <Facts
              of={[
                ["Group", <code>{c.clusterUuid}</code>],
                ["Log", `committed ${c.commitIndex}, applied ${c.appliedIndex}`],
                ["Snapshot", c.snapshotIndex ? `index ${c.snapshotIndex}, ${since(c.snapshotAtUnixNanos)} ago` : "none yet"],
                ["Export", c.lastExportAtUnixNanos ? `${since(c.lastExportAtUnixNanos)} ago` : "none"],
                ["Disk", `${count(c.diskBytes)} bytes`],
                ["Feature level", `${c.featureLevel} of ${c.featureLevelMax}`],
                ["Build", c.build],
              ]}
            />
            <Section title="Replicas">
              <Table
                label="Replicas"
                rows={c.peers}
                id={(p) => p.nodeId}
                columns={[
                  { head: "Replica", cell: (p) => p.nodeId },
                  { head: "Role", cell: (p) => (p.leader ? <Mark shape="●" word="leader" tone="met" /> : p.suffrage) },
                  { head: "Address", cell: (p) => <code>{p.rpcAddress}</code> },
                  {
                    head: "Heard",
                    num: true,
                    cell: (p) => (p.leader ? "" : p.lastContactMs < 0 ? "unknown" : `${span(Number(p.lastContactMs))} ago`),
                  },
                  { head: "Build", cell: (p) => p.build },
                ]}
              />
            </Section>
          </>
        )}
      </Shown>
      <Section title="Instructions that wait for an answer">
        <Shown of={stuck} empty={(a) => a.instructions.length === 0 && <Empty>Every instruction is answered.</Empty>}>
          {(a) => (
            <Table
              label="Instructions"
              rows={a.instructions}
              id={(i) => `${i.shardId} ${i.instruction?.instructionId}`}
              columns={[
                { head: "Shard", cell: (i) => i.shardId },
                { head: "Instruction", cell: (i) => i.instruction?.payload.case ?? "" },
                { head: "Since", num: true, cell: (i) => since(i.sinceUnixNanos) },
                { head: "Attempts", num: true, cell: (i) => i.instruction?.attempt ?? 0 },
                { head: "State", cell: (i) => (i.stuck ? <Mark shape="▲" word="given up" tone="short" /> : "waits") },
              ]}
            />
          )}
        </Shown>
      </Section>
      <Section title="Orders, newest first" end={<Ask rpc="CoordinatorAdmin/ListAudit" cli="bigfleet get audit" />}>
        <Shown of={audit} empty={(a) => a.records.length === 0 && <Empty>No order has been given yet.</Empty>}>
          {(a) => (
            <Table
              label="Orders"
              rows={a.records}
              id={(r) => String(r.index)}
              columns={[
                { head: "When", cell: (r) => clock(r.atUnixNanos) },
                { head: "Who", cell: (r) => <Name>{r.actor || "a loopback caller"}</Name> },
                { head: "What", cell: (r) => <code>{r.method.split("/").pop()}</code> },
                { head: "With", cell: (r) => <bdi class="mono">{r.requestJson.slice(0, 300)}</bdi> },
                { head: "Result", cell: (r) => <span class={r.result === "ok" ? "met" : "short"}>{r.result}</span> },
                { head: "Reason", cell: (r) => <Sentence>{r.reason}</Sentence> },
              ]}
            />
          )}
        </Shown>
      </Section>
    </>
  );
}

export function Ownership() {
  const domains = useAnswer((s) => core.listDomainAssignments({}, { signal: s }), [], 3000);
  const moves = useAnswer((s) => admin.listDomainMoves({}, { signal: s }), [], 3000);
  const bindings = useAnswer((s) => admin.listClusterBindings({ pageSize: 1000 }, { signal: s }), [], 5000);
  return (
    <>
      <Section
        title="Domains by shard"
        end={<Ask rpc="Coordinator/ListDomainAssignments" cli="bigfleet get domains" prom="max(bigfleet_coordinator_domains)" />}
      >
        <Shown
          of={domains}
          empty={(a) =>
            a.assignments.length === 0 && <Empty>No domain is assigned: the default owner of each provider has everything.</Empty>
          }
        >
          {(a) => (
            <Table
              label="Domains"
              rows={a.assignments}
              id={(d) => `${d.topologyKey} ${d.topologyValue}`}
              columns={[
                { head: "Domain", cell: (d) => <Name>{`${d.topologyKey}=${d.topologyValue}`}</Name> },
                { head: "Owner", cell: (d) => <Link href={opened(open.shard(d.shardId))}>{d.shardId}</Link> },
                { head: "Next owner", cell: (d) => (d.nextShardId ? <Mark shape="◐" word={d.nextShardId} tone="way" /> : "") },
                { head: "Since", num: true, cell: (d) => since(d.sinceUnixNanos) },
              ]}
            />
          )}
        </Shown>
      </Section>
      <Section title="Handovers under way">
        <Shown of={moves} empty={(a) => a.moves.length === 0 && <Empty>None.</Empty>}>
          {(a) => (
            <Table
              label="Handovers"
              rows={a.moves}
              id={(m) => `${m.domain?.topologyKey} ${m.domain?.topologyValue}`}
              columns={[
                { head: "Domain", cell: (m) => <Name>{`${m.domain?.topologyKey}=${m.domain?.topologyValue}`}</Name> },
                { head: "From", cell: (m) => m.domain?.shardId ?? "" },
                { head: "To", cell: (m) => m.domain?.nextShardId ?? "" },
                { head: "Waits for", cell: (m) => <Sentence>{m.waitingFor}</Sentence> },
              ]}
            />
          )}
        </Shown>
      </Section>
      <Section title="Clusters by shard" end={<Ask rpc="CoordinatorAdmin/ListClusterBindings" cli="bigfleet clusters bindings" />}>
        <Shown of={bindings} empty={(a) => a.bindings.length === 0 && <Empty>No cluster is bound.</Empty>}>
          {(a) => (
            <>
              {a.rebuilding && <p class="note info">Rebuilding after a change of the leader.</p>}
              <Table
                label="Bindings"
                rows={a.bindings}
                id={(b) => b.clusterId}
                columns={[
                  {
                    head: "Cluster",
                    cell: (b) => (
                      <Link href={opened(open.cluster(b.shardId, b.clusterId))}>
                        <Name>{b.clusterId}</Name>
                      </Link>
                    ),
                  },
                  { head: "Shard", cell: (b) => b.shardId },
                  {
                    head: "Session",
                    cell: (b) =>
                      b.conflictingShardId ? (
                        <Mark shape="▲" word={`also at ${b.conflictingShardId}`} tone="short" />
                      ) : b.liveSession ? (
                        <Mark shape="●" word="live" tone="met" />
                      ) : (
                        <span class="dim">{b.stale ? "not reported for 30 days" : "none"}</span>
                      ),
                  },
                  { head: "Machines", num: true, cell: (b) => count(b.boundMachines) },
                  { head: "Since", num: true, cell: (b) => since(b.boundAtUnixNanos) },
                ]}
              />
            </>
          )}
        </Shown>
      </Section>
    </>
  );
}

export function Moves() {
  const flow = useFlow<WatchMovesResponse, Map<string, Move>>(
    () => new Map(),
    (signal) => live.watchMoves({}, { signal }),
    (all, m) => {
      for (const x of m.moves) all.set(x.moveId, x);
      return new Map(all);
    },
    [],
  );
  const policy = useAnswer((s) => admin.getRebalance({}, { signal: s }), [], 10000);
  if (!flow.value)
    return flow.lost ? (
      <p class="note bad" role="alert">
        {flow.lost}
      </p>
    ) : (
      <Waiting />
    );
  const rows = [...flow.value.values()].sort((a, b) => Number(b.startedAtUnixNanos - a.startedAtUnixNanos));
  const done = [Move_State.DONE, Move_State.ABORTED];
  return (
    <>
      <Shown of={policy}>
        {(p) => (
          <p class="dim">
            The rebalancer is {["", "on", "in dry run", "off"][p.policy?.mode ?? 0]}; last sweep {since(p.lastSweepAtUnixNanos)} ago.{" "}
            <Ask rpc="CoordinatorAdmin/ListMoves" cli="bigfleet rebalance moves" />
          </p>
        )}
      </Shown>
      {rows.length === 0 ? (
        <Empty>No machine moves between shards, and none did within the hour.</Empty>
      ) : (
        <Table
          label="Moves"
          rows={rows}
          id={(m) => m.moveId}
          columns={[
            { head: "Move", cell: (m) => <Name>{m.moveId}</Name> },
            {
              head: "State",
              cell: (m) => (
                <Mark
                  shape={done.includes(m.state) ? "●" : "◐"}
                  word={plainName(Move_State[m.state] ?? "")}
                  tone={m.state === Move_State.DONE ? "met" : m.state === Move_State.ABORTED ? "short" : "way"}
                />
              ),
            },
            { head: "From", cell: (m) => m.fromShardId },
            { head: "To", cell: (m) => m.toShardId },
            { head: "Tier", cell: (m) => plainName(MoveTier[m.tier] ?? "") },
            { head: "Machines", num: true, cell: (m) => `${m.machineIds.length} of ${m.wanted}` },
            {
              head: "Why",
              cell: (m) => (
                <>
                  <Sentence>{m.reason}</Sentence>
                  {m.donors.length > 0 && (
                    <details>
                      <summary>{m.donors.length} donors looked at</summary>
                      {m.donors.map((d) => (
                        <div key={d.shardId}>
                          {d.shardId}: {d.taken ? "taken" : "passed over"}, <Sentence>{d.reason}</Sentence>
                        </div>
                      ))}
                    </details>
                  )}
                </>
              ),
            },
          ]}
        />
      )}
    </>
  );
}
