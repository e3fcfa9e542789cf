// Why a need is met or waits: funnel, competitors, nearest miss, what would help.
import type { GetRequestersResponse } from "@bigfleet/api/v1alpha1/console";
import { Link } from "wouter-preact";
import { at, live, shard } from "../api";
import { Ask, Bar, Empty, Facts, Mark, Name, Section, Sentence, Shown, Table, Timeline } from "../design/parts";
import { amounts, clock, count, dollars, gangName, quote, requirement, since, standing } from "../format";
import { useAnswer } from "../live";
import { event } from "../records";
import { momentOf, open, opened, useQuery } from "../url";
import { Sheet } from "./sheet";

function RequestedBy({ of, cluster, row }: { of: GetRequestersResponse; cluster: string; row: string }) {
  if (of.requesters.length === 0) return <span class="dim">No CapacityRequest of the cluster counts in it now.</span>;
  return (
    <>
      {of.requesters.map((r) => (
        <div key={r.namespace}>
          <Name>{r.namespace}</Name>
          {r.team && (
            <>
              {" "}
              of team <Name>{r.team}</Name>
            </>
          )}
          , {count(r.requests)} {r.requests === 1 ? "request" : "requests"}
        </div>
      ))}
      {of.more && <div class="dim">There are more.</div>}{" "}
      <Ask
        rpc="Console/GetRequesters"
        body={{ clusterId: cluster, rowId: row }}
        cli={`bigfleet get needs --cluster ${quote(cluster)} --all-namespaces --kube-context ${quote(cluster)}`}
      />
    </>
  );
}

export function NeedDrawer({
  shardId,
  cluster,
  row,
  print,
  group,
}: {
  shardId: string;
  cluster: string;
  row: string;
  print: string;
  group: string;
}) {
  const ref = { clusterId: cluster, rowId: row, profileFingerprint: print, group };
  const answer = useAnswer(
    (signal) => shard.explain({ subject: { case: "need", value: ref } }, at(shardId, signal)),
    [shardId, cluster, row, print, group],
    3000,
  );
  const moment = momentOf(useQuery()[0]); // a cluster knows its present requests only
  const asked = useAnswer(
    row && !moment ? (signal) => live.getRequesters({ clusterId: cluster, rowId: row }, { signal }) : undefined,
    [cluster, row, moment],
    30000,
  );
  return (
    <Sheet
      title={`${cluster}/${row || print}`}
      kind="need"
      end={<Ask rpc="ShardRead/Explain" target={shardId} body={{ need: ref }} cli={`bigfleet explain need/${cluster}/${row || print}`} />}
    >
      <Shown of={answer}>
        {(e) => {
          const n = e.need;
          const s = n ? standing(n) : undefined;
          const most = Math.max(1, ...e.funnel.map((f) => f.machines));
          return (
            <>
              <p>
                {s && <Mark shape={s.shape} word={s.word} tone={s.tone} />}{" "}
                {n && !n.satisfied && (
                  <span class="dim">
                    for {since(n.unmetSinceUnixNanos)}, {n.turnPosition > 0 && `place ${n.turnPosition} in the order`}
                  </span>
                )}
                <br />
                <Sentence>{e.verdict || n?.detailText}</Sentence>
              </p>
              {e.suggestion && (
                <p class="note info">
                  <b>What would help: </b>
                  <Sentence>{e.suggestion}</Sentence>
                </p>
              )}
              {n && (
                <Facts
                  of={[
                    [
                      "Cluster",
                      <Link href={opened(open.cluster(shardId, cluster))}>
                        <Name>{cluster}</Name>
                      </Link>,
                    ],
                    [
                      "Requested by",
                      asked.value ? (
                        <RequestedBy of={asked.value} cluster={cluster} row={row} />
                      ) : (
                        asked.error && <span class="dim">{asked.error}</span>
                      ),
                    ],
                    ["Requests", amounts(n.need?.aggregateResources)],
                    ["Each Pod", amounts(n.need?.minUnit)],
                    ["Still missing", n.residualDeficit && amounts(n.residualDeficit.resources)],
                    ["Priority", count(n.need?.priority ?? 0)],
                    ["Gang", gangName(n.need?.group) && <Name>{gangName(n.need?.group)}</Name>],
                    [
                      "Requires",
                      n.need?.requirements.map((r) => (
                        <div key={r.key}>
                          <bdi class="mono">{requirement(r)}</bdi>
                        </div>
                      )),
                    ],
                    [
                      "Machines",
                      `${count(n.claimedMachineCount)} claimed${n.onTheWayCount ? `, ${count(n.onTheWayCount)} on the way` : ""}${n.sharedCount ? `, shares of ${count(n.sharedCount)}` : ""}`,
                    ],
                    ["Cost", `${dollars(n.costUsdPerHour)}/h`],
                  ]}
                />
              )}
              {e.funnel.length > 0 && (
                <Section title="From all machines to those it gets">
                  <div class="funnel">
                    {e.funnel.map((f) => (
                      <>
                        <span key={f.step}>{f.step}</span>
                        <span class="num">{count(f.machines)}</span>
                        <Bar thin label={f.step} total={most} parts={[{ label: f.step, size: f.machines, tone: "way" }]} />
                        {f.why && (
                          <span class="why" dir="auto">
                            {f.why}
                          </span>
                        )}
                      </>
                    ))}
                  </div>
                </Section>
              )}
              {e.nearestMiss && (
                <Section title="Nearest miss">
                  <Sentence>{e.nearestMiss}</Sentence>
                </Section>
              )}
              {Object.keys(e.withheld).length > 0 && (
                <Section title="Held back">
                  <Facts of={Object.entries(e.withheld).map(([k, v]) => [k, count(v)])} />
                </Section>
              )}
              {e.winners.length > 0 && (
                <Section title="Who holds what fits">
                  <Table
                    label="Who holds what fits"
                    rows={e.winners}
                    id={(w) => `${w.need?.clusterId} ${w.need?.rowId} ${w.need?.profileFingerprint}`}
                    columns={[
                      {
                        head: "Need",
                        cell: (w) => (
                          <Link
                            href={opened(
                              open.need(
                                shardId,
                                w.need?.clusterId ?? "",
                                w.need?.rowId ?? "",
                                w.need?.profileFingerprint ?? "",
                                w.need?.group ?? "",
                              ),
                            )}
                          >
                            <Name>{`${w.need?.clusterId}/${w.need?.rowId || w.need?.profileFingerprint}`}</Name>
                          </Link>
                        ),
                      },
                      { head: "Priority", num: true, cell: (w) => count(w.priority) },
                      { head: "Machines", num: true, cell: (w) => count(w.machines) },
                      { head: "Why it keeps them", cell: (w) => <Sentence>{w.why}</Sentence> },
                    ]}
                  />
                </Section>
              )}
              {e.domains.length > 0 && (
                <Section title="Domains that could hold it">
                  <Table
                    label="Domains"
                    rows={e.domains}
                    id={(d) => d.domain}
                    columns={[
                      { head: "Domain", cell: (d) => <Name>{d.domain}</Name> },
                      {
                        head: "Covers",
                        cell: (d) => (
                          <Bar
                            thin
                            label={d.domain}
                            total={1000}
                            parts={[
                              {
                                label: "covered",
                                size: d.coveragePerMille,
                                tone: d.satisfiable ? "met" : "held",
                                text: `${d.coveragePerMille / 10} %`,
                              },
                            ]}
                          />
                        ),
                      },
                    ]}
                  />
                </Section>
              )}
              {e.candidates.length > 0 && (
                <Section title="Machines looked at, cheapest first">
                  <Table
                    label="Candidates"
                    rows={e.candidates}
                    id={(c) => c.machineId}
                    columns={[
                      {
                        head: "Machine",
                        cell: (c) => (
                          <Link href={opened(open.machine(c.machineId, shardId))}>
                            <Name>{c.machineId}</Name>
                          </Link>
                        ),
                      },
                      { head: "Price", num: true, cell: (c) => dollars(c.pricePerHour) },
                      { head: "With risk", num: true, cell: (c) => dollars(c.effectiveCost) },
                      { head: "Verdict", cell: (c) => <Sentence>{c.taken ? "taken" : c.why}</Sentence> },
                    ]}
                  />
                </Section>
              )}
              <Section
                title="What led here"
                end={
                  <span class="dim">
                    cycle {String(e.cycle)} at {clock(e.cycleAtUnixNanos)}
                  </span>
                }
              >
                {e.records.length === 0 ? <Empty>Nothing is recorded about this need.</Empty> : <Timeline events={e.records.map(event)} />}
              </Section>
            </>
          );
        }}
      </Shown>
    </Sheet>
  );
}
