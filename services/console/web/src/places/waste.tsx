// What is paid and not used.
import type { MachineView } from "@bigfleet/api/v1alpha1/shardread";
import { MachineState } from "@bigfleet/api/v1alpha1/provider";
import { Link } from "wouter-preact";
import { at, shard } from "../api";
import { Ask, Bar, Empty, Mark, Name, Section, Shown, Table, Waiting } from "../design/parts";
import { each, Missing, useShards } from "../fleet";
import { amounts, capacityName, dollars, many, since, stateName, toneOf } from "../format";
import { useAnswer, useNow } from "../live";
import { asMachine, owned } from "../machines";
import { link, open, opened } from "../url";
import { gather, idle } from "./costs";

/** paid says whether a machine of the shard has a host, and so costs its price. Older shards do not say it. */
export const paid = (m: MachineView) => owned(m) && (m.hasHost ?? true);

export function Waste() {
  return (
    <>
      <Unused />
      <Unneeded />
    </>
  );
}

/** Of what serves, the part that its cluster does not request. */
export function Unused() {
  const ids = useShards();
  const answer = useAnswer(
    ids.length ? (s) => each(ids, (id) => shard.getCost({ groupBy: ["cluster"] }, at(id, s))) : undefined,
    [ids.join()],
    3000,
  );
  if (ids.length === 0) return null;
  return (
    <Section
      title="Bought and not requested"
      end={<Ask rpc="ShardRead/GetCost" target={ids[0]} body={{ groupBy: ["cluster"] }} cli="bigfleet cost --waste" />}
    >
      <Shown
        of={answer}
        empty={(a) =>
          gather(a.got).every((r) => r.serving + r.stuck === 0) && a.missing.length === 0 && <Empty>No machine serves a cluster yet.</Empty>
        }
      >
        {(a) => {
          const rows = gather(a.got)
            .filter((r) => r.group && r.serving + r.stuck > 0)
            .sort((x, y) => y.unused + y.stuck - x.unused - x.stuck || (x.group < y.group ? -1 : 1));
          return (
            <>
              <Missing of={a.missing} />
              <Table
                label="Bought and not requested"
                rows={rows.slice(0, 200)}
                id={(r) => r.group}
                columns={[
                  {
                    head: "Cluster",
                    cell: (r) => (
                      <Link href={link("/demand", { cluster: r.group })}>
                        <Name>{r.group}</Name>
                      </Link>
                    ),
                  },
                  { head: "Requested", cell: (r) => amounts(r.requested) || <span class="dim">nothing</span> },
                  { head: "Provided", cell: (r) => amounts(r.provided) || <span class="dim">nothing</span> },
                  {
                    head: "Use",
                    cell: (r) => (
                      <Bar
                        thin
                        label={r.group}
                        parts={[
                          { label: "requested", size: r.serving - r.unused, tone: "met", text: dollars(r.serving - r.unused) },
                          { label: "not requested", size: r.unused, tone: "money", text: dollars(r.unused) },
                          { label: "stuck", size: r.stuck, tone: "short", text: dollars(r.stuck) },
                        ]}
                      />
                    ),
                  },
                  { head: "$/h", num: true, cell: (r) => dollars(r.serving) },
                  { head: "Not requested", num: true, cell: (r) => dollars(r.unused) },
                  { head: "Stuck", num: true, cell: (r) => dollars(r.stuck) },
                ]}
              />
              <p class="dim">
                At least so much is not requested: it counts by the resource of which a cluster uses the largest part. Requests that no
                machine covers use nothing.
              </p>
            </>
          );
        }}
      </Shown>
    </Section>
  );
}

export function Unneeded() {
  const ids = useShards();
  const now = useNow(5000);
  const answer = useAnswer(
    ids.length
      ? (s) =>
          each(ids, (id) =>
            shard.listMachines(
              { pageSize: 1000, states: [MachineState.IDLE, MachineState.FAILED, MachineState.DRAINING, MachineState.DELETING] },
              at(id, s),
            ),
          )
      : undefined,
    [ids.join()],
    3000,
  );
  if (ids.length === 0) return <Waiting />;
  return (
    <Section title="Machines that serve no cluster">
      <Shown
        of={answer}
        empty={(a) =>
          a.got.every(([, x]) => !x.machines.some(paid)) &&
          a.missing.length === 0 && <Empty>Every machine that costs money is in use or on its way.</Empty>
        }
      >
        {(a) => {
          const rows = a.got
            .flatMap(([, x]) => x.machines.filter(paid).map(asMachine))
            .sort((x, y) => y.price - x.price || x.since - y.since);
          return (
            <>
              <Missing of={a.missing} />
              <p>
                {many(rows.length, "machine")} {rows.length === 1 ? "costs" : "cost"} {dollars(rows.reduce((n, r) => n + r.price, 0))} an
                hour and {rows.length === 1 ? "serves" : "serve"} no cluster. Each opens to why it is kept.{" "}
                <Ask
                  rpc="ShardRead/ListMachines"
                  target={ids[0]}
                  body={{ states: ["MACHINE_STATE_IDLE", "MACHINE_STATE_FAILED"] }}
                  cli="bigfleet cost --waste"
                  prom={idle}
                />
              </p>
              <Table
                label="Machines that are not in use"
                rows={rows.slice(0, 300)}
                id={(r) => r.id}
                columns={[
                  {
                    head: "Machine",
                    cell: (r) => (
                      <Link href={opened(open.machine(r.id, r.shard))}>
                        <Name>{r.id}</Name>
                      </Link>
                    ),
                  },
                  { head: "State", cell: (r) => <Mark word={stateName(r.state)} tone={toneOf(r.state)} /> },
                  { head: "For", num: true, cell: (r) => since(BigInt(r.since) * 1_000_000n, now) },
                  { head: "Type", cell: (r) => `${r.type}, ${capacityName(r.capacity)}` },
                  { head: "Zone", cell: (r) => r.zone },
                  { head: "Last cluster", cell: (r) => <Name>{r.cluster}</Name> },
                  { head: "$/h", num: true, cell: (r) => dollars(r.price) },
                ]}
              />
            </>
          );
        }}
      </Shown>
    </Section>
  );
}
