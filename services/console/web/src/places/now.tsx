import { Link } from "wouter-preact";
import { Ask, Bar, Empty, Figure, Mark, Name, Section, Sentence, Waiting } from "../design/parts";
import { useFleet } from "../fleet";
import { amounts, byState, count, dollars, plainName, shortNeed, since, standing, stateNumber, stateTone } from "../format";
import { useNow } from "../live";
import { Line, worth } from "../records";
import { link, momentOf, useQuery } from "../url";
import { Calm, Selectable } from "./calm";
import { holdsBack } from "./holds";
import { First } from "./first";
import { needLink, Then } from "./then";
import { Today } from "./today";

export function Now() {
  const [q] = useQuery();
  return momentOf(q) ? <Then moment={momentOf(q)} /> : <Live />;
}

function Live() {
  const flow = useFleet();
  const now = useNow();
  const v = flow.value;
  if (!v)
    return (
      <div class="page">
        <h1>Now</h1>
        {flow.lost ? (
          <p class="note bad" role="alert">
            {flow.lost}
          </p>
        ) : (
          <Waiting what="Connecting to the fleet…" />
        )}
      </div>
    );
  const waiting = v.waiting;
  const unmet = v.shards.reduce((n, s) => n + s.unsatisfiedNeeds, 0);
  const holds = holdsBack(v.shards);
  const fresh =
    v.shards.length > 0 &&
    v.needs === 0n &&
    Object.entries(v.machinesByState).every(([k, n]) => n === 0n || k === "MACHINE_STATE_SPECULATIVE");
  const rates = Object.entries(v.actionsPerMinute);
  const status = { rpc: "ShardRead/GetStatus", target: v.shards[0]?.shardId, cli: "bigfleet status" };
  const needs = { cli: "bigfleet get needs", prom: "sum(bigfleet_shard_needs) - sum(bigfleet_shard_needs_unmet)" };
  const machines = {
    rpc: "ShardRead/ListMachines",
    target: v.shards[0]?.shardId,
    body: { states: ["MACHINE_STATE_CONFIGURED"], pageSize: 1, count: true },
    cli: "bigfleet get machines --state configured",
    prom: 'sum(bigfleet_shard_inventory_machines{state="Configured"})',
  };
  return (
    <div class={`page ${flow.lost ? "stale" : ""}`}>
      <div class="head">
        <h1>{v.headline}</h1>
        <span class="end">
          <Ask {...status} prom="sum(bigfleet_shard_needs_unmet)" />
        </span>
      </div>
      {v.fleet?.rebuilding && (
        <p class="note info">The coordinator is rebuilding what it knows after a change of its leader. Shards go on meanwhile.</p>
      )}
      <div class="figures">
        <Figure label="Needs met" href={link("/demand")} tone={unmet ? undefined : "met"} ask={needs}>
          {count(Number(v.needs) - unmet)} of {count(v.needs)}
        </Figure>
        <Figure
          label="Waiting"
          href={link("/demand", { show: "waiting" })}
          tone={unmet ? "short" : undefined}
          ask={{ cli: "bigfleet get needs --unmet", prom: "sum by (reason) (bigfleet_shard_needs_unmet)" }}
        >
          {count(unmet)}
        </Figure>
        <Figure label="Machines in use" href={link("/fleet/machines", { state: "5" })} ask={machines}>
          {count(v.machinesByState.MACHINE_STATE_CONFIGURED ?? 0n)}
        </Figure>
        <Figure
          label="Spend"
          href={link("/money")}
          ask={{
            rpc: "ShardRead/GetCost",
            target: v.shards[0]?.shardId,
            cli: "bigfleet cost",
            prom: "sum(bigfleet_shard_spend_dollars_per_hour)",
          }}
        >
          {dollars(v.costPerHour)}
          <span class="dim"> /h</span> <Today />
        </Figure>
        <Figure
          label="Actions in a minute"
          href={link("/history")}
          ask={{
            rpc: "ShardRead/GetMachineHistory",
            target: v.shards[0]?.shardId,
            body: { pageSize: 100 },
            cli: "bigfleet history",
            prom: "sum by (kind) (increase(bigfleet_shard_actions_total[1m]))",
          }}
        >
          {count(rates.reduce((n, [, x]) => n + x, 0))}
        </Figure>
        <Figure
          label="Clusters connected"
          href={link("/fleet/clusters")}
          ask={{
            rpc: "ShardRead/ListClusters",
            target: v.shards[0]?.shardId,
            cli: "bigfleet get clusters",
            prom: "sum(bigfleet_shard_active_sessions)",
          }}
        >
          {count(v.shards.reduce((n, s) => n + s.sessions, 0))}
        </Figure>
      </div>
      <Bar
        legend
        label="Machines"
        parts={byState(v.machinesByState)
          .filter(([k]) => k !== "MACHINE_STATE_SPECULATIVE")
          .map(([k, n]) => ({
            label: plainName(k),
            size: n,
            tone: stateTone[plainName(k)] ?? "dim",
            href: link("/fleet/machines", { state: stateNumber(k) }),
          }))}
      />
      {fresh && <First clusters={v.shards.reduce((n, s) => n + s.sessions, 0)} shard={v.fleet?.shards[0]?.address ?? ""} />}
      <div class="columns">
        <div class="section" style={{ gap: "24px" }}>
          <Section
            title={unmet ? `Waits, longest first` : "Nothing waits"}
            end={
              unmet > waiting.length && waiting.length > 0 ? (
                <Link href={link("/demand", { show: "waiting" })}>all {count(unmet)}</Link>
              ) : undefined
            }
          >
            {unmet === 0 && v.needs > 0n && <Empty>Every need has what it asks for.</Empty>}
            {unmet > 0 && waiting.length === 0 && <Waiting what="Reading the needs that wait…" />}
            <Calm rows={waiting.slice(0, 20)} keyOf={(w) => w.key}>
              {(rows) => (
                <Selectable rows={rows} href={(w) => (w.need ? needLink(w.shardId, w.need) : "")}>
                  {(w) => {
                    const n = w.need;
                    if (!n) return null;
                    const s = standing(n);
                    return (
                      <>
                        <Mark shape={s.shape} word={s.word} tone={s.tone} />
                        <span>
                          <Link href={needLink(w.shardId, n)}>
                            <Name>{shortNeed(n)}</Name>
                          </Link>{" "}
                          <span class="dim">{amounts(n.need?.aggregateResources)}</span>
                          <br />
                          <Sentence>{n.detailText}</Sentence>
                        </span>
                        <span class="dim num">{since(n.unmetSinceUnixNanos, now)}</span>
                      </>
                    );
                  }}
                </Selectable>
              )}
            </Calm>
          </Section>
          {v.warnings.length > 0 && (
            <details>
              <summary>
                {count(v.warnings.length)} {v.warnings.length === 1 ? "warning" : "warnings"} for those who run BigFleet
              </summary>
              <ul class="list">
                {v.warnings.map((w) => (
                  <li key={w}>
                    <Sentence>{w}</Sentence>
                  </li>
                ))}
              </ul>
            </details>
          )}
          <Section title={holds.length ? "What holds it back" : "Nothing holds it back"}>
            <ul class="list">
              {holds.map((h) => (
                <li key={h.key}>
                  <span>
                    <Link href={h.href}>
                      <Mark shape={h.bad ? "▲" : "◇"} word={h.word} tone={h.bad ? "short" : "held"} />
                    </Link>{" "}
                    <Sentence>{h.text}</Sentence> {h.order}
                  </span>
                </li>
              ))}
            </ul>
          </Section>
        </div>
        <Section title="What the fleet does" end={<Link href={link("/history")}>history</Link>}>
          {rates.length > 0 && <p class="dim">In the last minute: {rates.map(([k, n]) => `${count(n)} ${plainName(k)}`).join(", ")}</p>}
          {v.recent.length === 0 && <Empty>Nothing has been done yet.</Empty>}
          <Calm rows={v.recent} keyOf={(r) => `${r.shardId} ${r.sequence}`}>
            {(rows) => (
              <ul class="list acts">
                {worth(rows)
                  .slice(0, 25)
                  .map((r) => (
                    <Line key={`${r.shardId} ${r.sequence}`} r={r} />
                  ))}
              </ul>
            )}
          </Calm>
        </Section>
      </div>
    </div>
  );
}
