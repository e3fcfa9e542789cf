// Fleet: what do we have?
import type { CapacityType, MachineState } from "@bigfleet/api/v1alpha1/provider";
import { useEffect, useState } from "preact/hooks";
import { Link, useLocation } from "wouter-preact";
import { at, shard } from "../api";
import { MachineMap } from "../design/map";
import { Aged, Ask, Bar, Choice, Empty, Mark, Name, Shown, Text, Waiting } from "../design/parts";
import { Cell, Head, Rows } from "../design/rows";
import { each, Missing, useFleet, useShards } from "../fleet";
import { byState, capacityName, count, dollars, quote, since, stateName, stateNumber, stateTone, toneOf } from "../format";
import { useAnswer, useNow } from "../live";
import { asMachine, type MachineRow, owned, useMachines } from "../machines";
import { link, open, opened, useQuery } from "../url";
import { Capacity } from "./capacity";
import { Clusters, Drains } from "./clusters";

const tabs: [string, string][] = [
  ["map", "Map"],
  ["machines", "Machines"],
  ["clusters", "Clusters"],
  ["capacity", "Capacity"],
  ["drains", "Drains"],
];

export function FleetPlace({ tab }: { tab: string }) {
  const [q] = useQuery();
  return (
    <div class="page" style={{ height: "100%" }}>
      <div class="head">
        <h1>Fleet</h1>
      </div>
      <nav class="tabs" aria-label="Fleet">
        {tabs.map(([k, t]) => (
          <Link key={k} href={link(`/fleet/${k}`)} aria-current={k === tab ? "page" : undefined}>
            {t}
          </Link>
        ))}
      </nav>
      {q.at && (
        <p class="note info">
          Shards record what was done with machines, not lists of them: this page is of now. A machine's drawer and{" "}
          <Link href={link("/history")}>History</Link> show that moment.
        </p>
      )}
      {tab === "map" && <Machinery />}
      {tab === "machines" && <List />}
      {tab === "clusters" && <Clusters />}
      {tab === "capacity" && <Capacity />}
      {tab === "drains" && <Drains />}
    </div>
  );
}

const mapMost = 20000;

function Machinery() {
  const ids = useShards();
  const [large, setLarge] = useState(false); // a large map is read less often
  const [, go] = useLocation();
  const [q, change] = useQuery();
  const answer = useAnswer(
    ids.length
      ? (s) =>
          each(ids, async (id) => {
            const rows: MachineRow[] = [];
            let pageToken = "";
            const states = [2, 3, 4, 5, 6, 7, 8] as MachineState[];
            do {
              const page = await shard.listMachines({ pageSize: 5000, pageToken, states }, at(id, s));
              rows.push(...page.machines.filter(owned).map(asMachine));
              pageToken = page.nextPageToken;
            } while (pageToken && rows.length < mapMost / ids.length);
            return { rows, more: !!pageToken };
          })
      : undefined,
    [ids.join()],
    large ? 30000 : 3000,
  );
  useEffect(() => setLarge((answer.value?.got.reduce((n, [, x]) => n + x.rows.length, 0) ?? 0) > 2000), [answer.value]);
  const by = q.by ?? "zone";
  if (ids.length === 0) return <Waiting />;
  return (
    <Shown
      of={answer}
      empty={(a) =>
        a.got.every(([, x]) => x.rows.length === 0) &&
        a.missing.length === 0 && <Empty>There is no machine yet: providers offer slots, and nothing was bought.</Empty>
      }
    >
      {(a) => {
        const rows = a.got.flatMap(([, x]) => x.rows);
        return (
          <>
            <div class="filters">
              <Choice
                label="Group by"
                value={by}
                options={[
                  ["zone", "provider and zone"],
                  ["rack", "rack"],
                  ["type", "type"],
                  ["cluster", "cluster"],
                  ["capacity", "capacity type"],
                ]}
                onChange={(v) => change({ by: v === "zone" ? undefined : v })}
              />
              <span class="dim">{count(rows.length)} machines, area by cpu; slots that cost nothing are left out</span>
              <Ask
                rpc="ShardRead/ListMachines"
                target={ids[0]}
                body={{ states: ["MACHINE_STATE_CONFIGURED", "MACHINE_STATE_IDLE"], pageSize: 100 }}
                cli="bigfleet get machines"
                prom='sum by (state) (bigfleet_shard_inventory_machines{state!="Speculative"})'
              />
            </div>
            <Missing of={a.missing} />
            {a.got.some(([, x]) => x.more) && (
              <p class="note info">
                The map shows the first {count(rows.length)} machines. <Link href={link("/fleet/machines")}>The table</Link> has all.
              </p>
            )}
            <Legend rows={rows} />
            <MachineMap rows={rows} by={by} onOpen={(r) => go(opened(open.machine(r.id, r.shard)))} />
            <p class="dim">
              Machines are in <Link href={link("/fleet/machines")}>the table</Link> as text.
            </p>
          </>
        );
      }}
    </Shown>
  );
}

function Legend({ rows }: { rows: MachineRow[] }) {
  const n: { [state: string]: number } = {};
  for (const r of rows) n[stateName(r.state)] = (n[stateName(r.state)] ?? 0) + 1;
  return (
    <Bar
      legend
      label="Machines"
      parts={byState(n).map(([k, size]) => ({
        label: k,
        size,
        tone: stateTone[k] ?? "dim",
        href: link("/fleet/machines", { state: stateNumber(k.toUpperCase()) }),
      }))}
    />
  );
}

const states: [string, string][] = [
  ["", "any"],
  ...[1, 2, 3, 4, 5, 6, 7, 8].map((s): [string, string] => [String(s), stateName(s as MachineState)]),
];

const classes: [string, string][] = [
  ["", "any"],
  ...[1, 2, 3, 4].map((s): [string, string] => [String(s), capacityName(s as CapacityType)]),
];

function List() {
  const [q, change] = useQuery();
  const [, go] = useLocation();
  const ids = useShards();
  const now = useNow(5000);
  const fleet = useFleet();
  const filter = {
    states: q.state ? [Number(q.state) as MachineState] : [],
    clusterId: q.cluster ?? "",
    provider: q.provider ?? "",
    instanceType: q.type ?? "",
    zone: q.zone ?? "",
    capacityTypes: q.class ? [Number(q.class) as CapacityType] : [],
  };
  const list = useMachines(q.shard ? [q.shard] : ids, filter);
  const providers = [...new Set(fleet.value?.shards.flatMap((s) => s.providers.map((p) => p.name)) ?? [])];
  const total = Object.values(fleet.value?.machinesByState ?? {}).reduce((n, x) => n + Number(x), 0);
  const buyable = Number(fleet.value?.machinesByState.MACHINE_STATE_SPECULATIVE ?? 0);
  const all = `${count(Math.max(total, list.known))} machines${buyable ? `, ${count(buyable)} of them not bought yet (speculative)` : ""}`;
  const words = [
    ["cluster", q.cluster],
    ["provider", q.provider],
    ["type", q.type],
    ["zone", q.zone],
    ["state", q.state && stateName(Number(q.state) as MachineState)],
  ]
    .map(([k, v]) => (v ? ` --${k} ${quote(v)}` : ""))
    .join("");
  const filtered = Object.values(filter).some((v) => v.length > 0) || !!q.shard;
  return (
    <>
      <div class="filters">
        <Choice label="State" value={q.state ?? ""} options={states} onChange={(v) => change({ state: v })} />
        <Text label="Cluster" value={q.cluster ?? ""} onChange={(v) => change({ cluster: v })} />
        <Text label="Type" value={q.type ?? ""} width={90} onChange={(v) => change({ type: v })} />
        <Text label="Zone" value={q.zone ?? ""} width={90} onChange={(v) => change({ zone: v })} />
        <Choice label="Class" value={q.class ?? ""} options={classes} onChange={(v) => change({ class: v })} />
        <Choice
          label="Provider"
          value={q.provider ?? ""}
          options={[["", "any"], ...providers.map((p): [string, string] => [p, p])]}
          onChange={(v) => change({ provider: v })}
        />
        <Choice
          label="Shard"
          value={q.shard ?? ""}
          options={[["", "all"], ...ids.map((s): [string, string] => [s, s])]}
          onChange={(v) => change({ shard: v })}
        />
        <Ask
          rpc="ShardRead/ListMachines"
          target={q.shard || ids[0]}
          body={Object.fromEntries(Object.entries(filter).filter(([, v]) => v.length > 0))}
          cli={`bigfleet get machines${words}`}
          prom="sum by (state, capacity_type) (bigfleet_shard_inventory_machines)"
        />
      </div>
      <p class="dim" role="status">
        {list.error ? <span class="short">{list.error}</span> : filtered ? list.counted ? `${count(list.known)} match` : "Counting…" : all}
        <Aged at={list.at} before=" · " />
      </p>
      {list.counted && list.known === 0 && !list.loading ? (
        <Empty>{filtered ? "No machine matches these filters." : "No provider has offered a machine yet."}</Empty>
      ) : (
        <Rows
          key={JSON.stringify([filter, q.shard])}
          kind="machines"
          label="Machines"
          count={list.count}
          busy={list.loading}
          onRange={list.want}
          onOpen={(i) => {
            const r = list.row(i);
            if (r) go(opened(open.machine(r.id, r.shard)));
          }}
          head={
            <>
              <Head>Machine</Head>
              <Head>State</Head>
              <Head wide>Type</Head>
              <Head wide>Zone</Head>
              <Head>Cluster</Head>
              <Head wide>Class</Head>
              <Head num wide>
                $/h
              </Head>
              <Head wide>Node</Head>
            </>
          }
          row={(i) => <MachineCells r={list.row(i)} now={now} />}
        />
      )}
    </>
  );
}

function MachineCells({ r, now }: { r: MachineRow | undefined; now: number }) {
  if (!r)
    return (
      <Cell>
        <span class="dim">…</span>
      </Cell>
    );
  return (
    <>
      <Cell>
        <a href={opened(open.machine(r.id, r.shard))} onClick={(e) => e.preventDefault()}>
          <Name>{r.id}</Name>
        </a>
      </Cell>
      <Cell>
        <span title={`for ${since(BigInt(r.since) * 1_000_000n, now)}`}>
          <Mark word={stateName(r.state)} tone={toneOf(r.state)} />
        </span>
      </Cell>
      <Cell wide>{r.type}</Cell>
      <Cell wide>{r.zone}</Cell>
      <Cell>
        <Name>{r.cluster}</Name>
      </Cell>
      <Cell wide>{capacityName(r.capacity)}</Cell>
      <Cell num wide>
        {dollars(r.price)}
      </Cell>
      <Cell wide>
        <Name>{r.node}</Name>
      </Cell>
    </>
  );
}
