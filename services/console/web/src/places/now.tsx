// Now: is anything wrong?
import type { GetCostResponse, NeedView } from "@bigfleet/api/v1alpha1/shardread";
import { Link, useLocation } from "wouter-preact";
import { at, shard } from "../api";
import { Ask, Bar, Copy, Empty, Figure, Mark, Name, Section, Sentence, Shown, Waiting } from "../design/parts";
import { Spark } from "../design/spark";
import { useEffect, useRef, useState } from "preact/hooks";
import { each, Missing, useFleet, useShards } from "../fleet";
import { amounts, byState, count, dollars, needName, plainName, shortRow, since, standing, stateNumber, stateTone } from "../format";
import { useAnswer, useNow } from "../live";
import { ResumeOrder } from "../orders/orders";
import { Line, worth } from "../records";
import { link, momentOf, open, opened, useQuery } from "../url";

export function Now() {
  const [q] = useQuery();
  return momentOf(q) ? <Then moment={momentOf(q)} /> : <Live />;
}

const needLink = (shardId: string, n: NeedView) => opened(open.need(shardId, n.clusterId, n.need?.rowId ?? "", n.profileFingerprint, n.need?.group ?? ""));

function Live() {
  const flow = useFleet();
  const now = useNow();
  const v = flow.value;
  if (!v) return <div class="page"><h1>Now</h1>{flow.lost ? <p class="note bad" role="alert">{flow.lost}</p> : <Waiting what="Connecting to the fleet…" />}</div>;
  const waiting = v.waiting;
  const unmet = v.shards.reduce((n, s) => n + s.unsatisfiedNeeds, 0);
  const holds = holdsBack(v.shards);
  const fresh = v.shards.length > 0 && v.needs === 0n && Object.entries(v.machinesByState).every(([k, n]) => n === 0n || k === "MACHINE_STATE_SPECULATIVE");
  const rates = Object.entries(v.actionsPerMinute);
  const status = { rpc: "ShardRead/GetStatus", target: v.shards[0]?.shardId, cli: "bigfleet status" };
  const needs = { cli: "bigfleet get needs", prom: "sum(bigfleet_shard_needs) - sum(bigfleet_shard_needs_unmet)" };
  const machines = { rpc: "ShardRead/ListMachines", target: v.shards[0]?.shardId, body: { states: ["MACHINE_STATE_CONFIGURED"], pageSize: 1, count: true }, cli: "bigfleet get machines --state configured", prom: 'sum(bigfleet_shard_inventory_machines{state="Configured"})' };
  return (
    <div class={`page ${flow.lost ? "stale" : ""}`}>
      <div class="head"><h1>{v.headline}</h1><span class="end"><Ask {...status} prom="sum(bigfleet_shard_needs_unmet)" /></span></div>
      {v.fleet?.rebuilding && <p class="note info">The coordinator is rebuilding what it knows after a change of its leader. Shards go on meanwhile.</p>}
      <div class="figures">
        <Figure label="Needs met" href={link("/demand")} tone={unmet ? undefined : "met"} ask={needs}>{count(Number(v.needs) - unmet)} of {count(v.needs)}</Figure>
        <Figure label="Waiting" href={link("/demand", { show: "waiting" })} tone={unmet ? "short" : undefined} ask={{ cli: "bigfleet get needs --unmet", prom: "sum by (reason) (bigfleet_shard_needs_unmet)" }}>{count(unmet)}</Figure>
        <Figure label="Machines in use" href={link("/fleet/machines", { state: "5" })} ask={machines}>{count(v.machinesByState.MACHINE_STATE_CONFIGURED ?? 0n)}</Figure>
        <Figure label="Spend" href={link("/money")} ask={{ rpc: "ShardRead/GetCost", target: v.shards[0]?.shardId, cli: "bigfleet cost", prom: "sum(bigfleet_shard_spend_dollars_per_hour)" }}>{dollars(v.costPerHour)}<span class="dim"> /h</span> <Today /></Figure>
        <Figure label="Actions in a minute" href={link("/history")} ask={{ rpc: "ShardRead/GetMachineHistory", target: v.shards[0]?.shardId, body: { pageSize: 100 }, cli: "bigfleet history", prom: "sum by (kind) (increase(bigfleet_shard_actions_total[1m]))" }}>{count(rates.reduce((n, [, x]) => n + x, 0))}</Figure>
        <Figure label="Clusters connected" href={link("/fleet/clusters")} ask={{ rpc: "ShardRead/ListClusters", target: v.shards[0]?.shardId, cli: "bigfleet get clusters", prom: "sum(bigfleet_shard_active_sessions)" }}>{count(v.shards.reduce((n, s) => n + s.sessions, 0))}</Figure>
      </div>
      <Bar legend label="Machines" parts={byState(v.machinesByState).filter(([k]) => k !== "MACHINE_STATE_SPECULATIVE").map(([k, n]) => ({ label: plainName(k), size: n, tone: stateTone[plainName(k)] ?? "dim", href: link("/fleet/machines", { state: stateNumber(k) }) }))} />
      {fresh && <First clusters={v.shards.reduce((n, s) => n + s.sessions, 0)} shard={v.fleet?.shards[0]?.address ?? ""} />}
      <div class="columns">
        <div class="section" style={{ gap: "24px" }}>
          <Section title={unmet ? `Waits, longest first` : "Nothing waits"} end={unmet > waiting.length && waiting.length > 0 ? <Link href={link("/demand", { show: "waiting" })}>all {count(unmet)}</Link> : undefined}>
            {unmet === 0 && v.needs > 0n && <Empty>Every need has what it asks for.</Empty>}
            {unmet > 0 && waiting.length === 0 && <Waiting what="Reading the needs that wait…" />}
            <Calm rows={waiting.slice(0, 20)} keyOf={(w) => w.key}>{(rows) => <Selectable rows={rows} href={(w) => (w.need ? needLink(w.shardId, w.need) : "")}>{(w) => {
              const n = w.need;
              if (!n) return null;
              const s = standing(n);
              return <><Mark shape={s.shape} word={s.word} tone={s.tone} /><span><Link href={needLink(w.shardId, n)}><Name>{`${n.clusterId}/${shortRow(n)}`}</Name></Link> <span class="dim">{amounts(n.need?.aggregateResources)}</span><br /><Sentence>{n.detailText}</Sentence></span><span class="dim num">{since(n.unmetSinceUnixNanos, now)}</span></>;
            }}</Selectable>}</Calm>
          </Section>
          {v.warnings.length > 0 && <details><summary>{count(v.warnings.length)} {v.warnings.length === 1 ? "warning" : "warnings"} for those who run BigFleet</summary><ul class="list">{v.warnings.map((w) => <li key={w}><Sentence>{w}</Sentence></li>)}</ul></details>}
          <Section title={holds.length ? "What holds it back" : "Nothing holds it back"}>
            <ul class="list">{holds.map((h) => <li key={h.key}><span><Link href={h.href}><Mark shape={h.bad ? "▲" : "◇"} word={h.word} tone={h.bad ? "short" : "held"} /></Link> <Sentence>{h.text}</Sentence> {h.order}</span></li>)}</ul>
          </Section>
        </div>
        <Section title="What the fleet does" end={<Link href={link("/history")}>history</Link>}>
          {rates.length > 0 && <p class="dim">In the last minute: {rates.map(([k, n]) => `${count(n)} ${plainName(k)}`).join(", ")}</p>}
          {v.recent.length === 0 && <Empty>Nothing has been done yet.</Empty>}
          <Calm rows={v.recent} keyOf={(r) => `${r.shardId} ${r.sequence}`}>{(rows) => <ul class="list acts">{worth(rows).slice(0, 25).map((r) => <Line key={`${r.shardId} ${r.sequence}`} r={r} />)}</ul>}</Calm>
        </Section>
      </div>
    </div>
  );
}
/** Spend since midnight, or since the console began to note it. */
function Today() {
  const ids = useShards();
  const answer = useAnswer(ids.length ? (s) => {
    const midnight = BigInt(new Date().setHours(0, 0, 0, 0)) * 1_000_000n;
    return each(ids, (id) => shard.getCost({ groupBy: ["capacity"], sinceUnixNanos: midnight, untilUnixNanos: BigInt(Date.now()) * 1_000_000n, points: 96 }, at(id, s)));
  } : undefined, [ids.join()], 60000);
  const values = spendOf(answer.value?.got.map(([, r]) => r) ?? []);
  if (values.length < 2) return null;
  return <Spark values={values} label={`Spend today: ${dollars(values[0] ?? 0)} an hour at first, ${dollars(Math.max(...values))} at most, ${dollars(values.at(-1) ?? 0)} now`} />;
}
/** Shards are noted at different times: at each, what every shard cost last adds up. */
function spendOf(shards: GetCostResponse[]): number[] {
  const notes = shards.flatMap((r, of) => r.points.map((p) => ({ of, when: p.atUnixNanos, cost: p.rows.reduce((n, row) => n + Object.values(row.costPerHourByState).reduce((m, x) => m + x, 0), 0) }))).sort((x, y) => (x.when < y.when ? -1 : 1));
  const last = new Map<number, number>();
  const all = shards.filter((r) => r.points.length > 0).length;
  const out: number[] = [];
  for (const n of notes) {
    last.set(n.of, n.cost);
    if (last.size === all) out.push([...last.values()].reduce((a, b) => a + b, 0));
  }
  return out;
}

/** Rows keep their place while the pointer is on them; new ones gather behind a count. */
function Calm<T>({ rows, keyOf, children }: { rows: T[]; keyOf: (row: T) => string; children: (rows: T[]) => preact.ComponentChildren }) {
  const [held, hold] = useState<T[]>();
  const known = new Set(held?.map(keyOf));
  const more = held ? rows.filter((r) => !known.has(keyOf(r))).length : 0;
  return (
    <div onMouseEnter={() => hold(rows)} onMouseLeave={() => hold(undefined)} style={{ position: "relative" }}>
      {more > 0 && <button type="button" class="fresh" onClick={() => hold(rows)}>{count(more)} new</button>}
      {children(held ?? rows)}
    </div>
  );
}

/** j and k walk through a list of links, enter opens. */
export function Selectable<T>({ rows, href, children, kind = "wait" }: { rows: T[]; href: (row: T) => string; children: (row: T) => preact.ComponentChildren; kind?: string }) {
  const [on, show] = useState(-1);
  const place = useRef(-1); // a second key may come before the page is drawn again
  const [, go] = useLocation();
  useEffect(() => {
    const keys = (e: KeyboardEvent) => {
      if (e.defaultPrevented || e.metaKey || e.ctrlKey || e.altKey || (e.target as HTMLElement).closest?.("input,select,textarea,a,button,.drawer")) return;
      const row = rows[place.current];
      if (e.key === "j" || e.key === "k") {
        place.current = Math.max(0, Math.min(rows.length - 1, place.current + (e.key === "j" ? 1 : -1)));
        show(place.current);
      } else if (e.key === "Enter" && row) {
        e.preventDefault();
        go(href(row));
      }
    };
    document.addEventListener("keydown", keys);
    return () => document.removeEventListener("keydown", keys);
  });
  return <ul class={`list ${kind}`}>{rows.map((r, i) => <li key={href(r)} class={i === on ? "on" : ""} style={i === on ? { background: "var(--paper-2)", boxShadow: "inset 3px 0 var(--link)" } : {}}>{children(r)}</li>)}</ul>;
}

type Hold = { key: string; word: string; text: string; href: string; bad: boolean; order?: preact.ComponentChildren };
function holdsBack(shards: import("@bigfleet/api/v1alpha1/shardread").GetStatusResponse[]): Hold[] {
  const out: Hold[] = [];
  for (const s of shards) {
    const href = opened(open.shard(s.shardId));
    const add = (key: string, word: string, text: string, bad = false, order?: preact.ComponentChildren) => out.push({ key: `${s.shardId} ${key}`, word, text, href, bad, order });
    for (const r of s.notReadyReasons) add(r, "not ready", `${s.shardId}: ${r}`, true);
    if (s.dryRun) add("dry", "dry run", `${s.shardId} decides and does nothing`);
    for (const p of s.pauses) add(p.pauseId, "paused", `${s.shardId}${p.clusterId ? `, cluster ${p.clusterId}` : ""} by ${p.actor || "somebody"}: ${p.reason}`, false, p.pauseId !== "flag" && <ResumeOrder shardId={s.shardId} pause={p} />);
    for (const p of s.providers) {
      if (p.breaker !== "closed" && p.breaker) add(`b ${p.name}`, "provider", `${p.name} (${s.shardId}), breaker ${p.breaker}: ${p.lastError}`, p.breaker === "open");
      if (p.removalsHeld) add(`r ${p.name}`, "removals held", `${p.removalsHeld} machines of ${p.name} vanished at once and are kept`);
      if (p.stockedOutPools.length) add(`o ${p.name}`, "out of stock", `${p.stockedOutPools.slice(0, 4).map((x) => `${x.instanceType} in ${x.zone}`).join(", ")}${p.stockedOutPools.length > 4 ? ` and ${p.stockedOutPools.length - 4} more` : ""} (${p.name})`);
    }
    for (const d of s.drains) if (d.blockingBudgets.length) add(`d ${d.machineId}`, "drain blocked", `${d.machineId}: ${d.blockingBudgets.join(", ")} refuses`);
    if (s.silentClusters) add("silent", "silent", `${s.silentClusters} clusters with machines have not reported for long`, true);
  }
  return out;
}

/** An empty fleet says what to do next. */
function First({ clusters, shard }: { clusters: number; shard: string }) {
  const chart = (name: string, more = "") => `helm install ${name} oci://ghcr.io/bigfleet-dev/charts/${name} -n bigfleet-system${more}`;
  return (
    <Section title="Three steps to the first machine">
      <ol class="first">
        <li>{clusters > 0 ? <p><span class="met">●</span> Connect a cluster: {count(clusters)} {clusters === 1 ? "is" : "are"} connected.</p> : <><p>Connect a cluster. Its operator says what the cluster needs, its pod controller watches its Pods.</p><Copy text={`${chart("bigfleet-operator", ` --set clusterID=red,shardAddress=${shard || "SHARD:7780"},bootstrap.apiServerURL=https://API-SERVER:6443`)}\n${chart("bigfleet-pod-controller")}`} /></>}</li>
        <li><p>Create Pods that fit on none of its Nodes. Their need appears here within seconds.</p><Copy text={"kubectl create deployment first --image registry.k8s.io/pause:3.10 --replicas 20\nkubectl set resources deployment first --requests cpu=1"} /></li>
        <li><p>Ask why, as long as it waits; the need's page answers too. A fleet of <code>bigfleet up</code> also plays stories.</p><Copy text={"bigfleet get needs --unmet\nbigfleet demo critical"} /></li>
      </ol>
    </Section>
  );
}

/** The same picture of another moment: needs as they stood, and what was done in the minutes before. */
function Then({ moment }: { moment: bigint }) {
  const ids = useShards();
  const needs = useAnswer(ids.length ? (s) => each(ids, async (id) => {
    const rows: NeedView[] = [];
    for await (const f of shard.inspectNeeds({ atUnixNanos: moment, unsatisfiedOnly: true, limit: 200 }, at(id, s))) if (f.frame.case === "need") rows.push(f.frame.value);
    return rows;
  }) : undefined, [ids.join(), moment]);
  const acts = useAnswer(ids.length ? (s) => each(ids, (id) => shard.getMachineHistory({ untilUnixNanos: moment, pageSize: 40 }, at(id, s))) : undefined, [ids.join(), moment]);
  return (
    <div class="page">
      <div class="head"><h1>As it was</h1><span class="end"><Ask rpc="ShardRead/GetMachineHistory" target={ids[0]} body={{ untilUnixNanos: moment, pageSize: 40 }} cli={`bigfleet get needs --unmet --at ${new Date(Number(moment / 1_000_000n)).toISOString()}`} /></span></div>
      <div class="columns">
        <Section title="What waited">{ids.length === 0 ? <Waiting /> : <Shown of={needs}>{(a) => {
          const rows = a.got.flatMap(([id, r]) => r.map((n) => ({ id, n })));
          return <><Missing of={a.missing} />{rows.length === 0 && <Empty>Nothing waited.</Empty>}<Selectable rows={rows} href={(w) => needLink(w.id, w.n)}>{({ id, n }) => { const s = standing(n); return <><Mark shape={s.shape} word={s.word} tone={s.tone} /><span><Link href={needLink(id, n)}><Name>{needName(n)}</Name></Link><br /><Sentence>{n.detailText}</Sentence></span><span class="dim num">{since(n.unmetSinceUnixNanos, Number(moment / 1_000_000n))}</span></>; }}</Selectable></>;
        }}</Shown>}</Section>
        <Section title="What had just happened">{ids.length === 0 ? <Waiting /> : <Shown of={acts}>{(a) => {
          const rows = a.got.flatMap(([, r]) => r.records).sort((x, y) => Number(y.atUnixNanos - x.atUnixNanos)).slice(0, 40);
          return <><Missing of={a.missing} />{rows.length === 0 && <Empty>Nothing is recorded of that time.</Empty>}<ul class="list acts">{rows.map((r) => <Line key={`${r.shardId} ${r.sequence}`} r={r} />)}</ul></>;
        }}</Shown>}</Section>
      </div>
    </div>
  );
}
