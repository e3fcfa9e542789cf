// What if: the engine runs on the present with edits, and nothing is done. The edits are in the address.
import type { CapacityType } from "@bigfleet/api/v1alpha1/provider";
import { type DemandEditSchema, type MachineEditSchema, PlanRequestSchema } from "@bigfleet/api/v1alpha1/shardread";
import { create, type MessageInitShape, toJson } from "@bufbuild/protobuf";
import type { DecisionRecord } from "@bigfleet/api/v1alpha1/decision";
import { useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { at, shard } from "../api";
import { Ask, Choice, Empty, Figure, Mark, Name, Section, Sentence, Shown, Table } from "../design/parts";
import { each, Missing, useShards } from "../fleet";
import { amounts, capacityName, count, dollars, needName, quote, shortNeed, standing } from "../format";
import { useAnswer } from "../live";
import { what } from "../records";
import { link, open, opened, useQuery } from "../url";

type Edit = {
  do: "stockout" | "price" | "scale" | "drop" | "zone";
  type?: string;
  zone?: string;
  class?: number;
  factor?: number;
  cluster?: string;
};
const kinds: [Edit["do"], string][] = [
  ["scale", "a cluster's demand changes"],
  ["drop", "a cluster goes away"],
  ["price", "prices change"],
  ["stockout", "a pool is out of stock"],
  ["zone", "a zone is out of service"],
];

/** The edits of an address; what is damaged is left out. */
function edits(text: string | undefined): Edit[] {
  try {
    const v: unknown = JSON.parse(text ?? "[]");
    return Array.isArray(v)
      ? v.filter((e): e is Edit => !!e && typeof e === "object" && kinds.some(([k]) => k === (e as Edit).do)).slice(0, 50)
      : [];
  } catch {
    return [];
  }
}
const say = (e: Edit) => {
  const pool = [e.class ? capacityName(e.class as CapacityType) : "", e.type || "machines", e.zone ? `in ${e.zone}` : ""]
    .filter(Boolean)
    .join(" ");
  switch (e.do) {
    case "scale":
      return `demand of ${e.cluster} × ${e.factor}`;
    case "drop":
      return `cluster ${e.cluster} goes away`;
    case "price":
      return `price of ${pool} × ${e.factor}`;
    case "stockout":
      return `${pool} out of stock`;
    case "zone":
      return `zone ${e.zone} out of service`;
  }
};
const flag = (e: Edit) =>
  ({
    scale: `--scale ${quote(e.cluster ?? "")}=${e.factor}`,
    drop: `--drop-cluster ${quote(e.cluster ?? "")}`,
    price: `--price ${quote(pool(e))}=${e.factor}`,
    stockout: `--stock-out ${quote(pool(e))}`,
    zone: `--drain-zone ${quote(e.zone ?? "")}`,
  })[e.do];
const pool = (e: Edit) => `${e.type}${e.zone ? `@${e.zone}` : ""}`;
/** The same for the command: in flags, where they say it all, or as the request. */
const command = (list: Edit[]) =>
  `bigfleet plan ${list.every((e) => !e.class && (e.type || !["price", "stockout"].includes(e.do))) ? `${list.map(flag).join(" ")} --settle` : `-f <(echo ${quote(JSON.stringify(asJSON(list)))})`}`;
function request(list: Edit[]): MessageInitShape<typeof PlanRequestSchema> {
  const demand: MessageInitShape<typeof DemandEditSchema>[] = [];
  const machines: MessageInitShape<typeof MachineEditSchema>[] = [];
  for (const e of list) {
    const pool = {
      instanceType: e.type ?? "",
      zone: e.zone ?? "",
      capacityType: (e.class ?? 0) as CapacityType,
      factor: Number(e.factor ?? 0),
    };
    if (e.do === "scale") demand.push({ clusterId: e.cluster ?? "", edit: { case: "scale", value: Number(e.factor ?? 1) } });
    else if (e.do === "drop") demand.push({ clusterId: e.cluster ?? "", edit: { case: "drop", value: true } });
    else if (e.do === "price") machines.push({ edit: { case: "price", value: pool } });
    else if (e.do === "stockout") machines.push({ edit: { case: "stockOut", value: pool } });
    else machines.push({ edit: { case: "drainZone", value: e.zone ?? "" } });
  }
  return { settle: true, demand, machines };
}
/** The same as JSON. */
const asJSON = (list: Edit[]) => toJson(PlanRequestSchema, create(PlanRequestSchema, request(list))) as object;

/** Names of clusters, types and zones that cost something now, the dearest first: for the fields, and for examples. */
function useNames(ids: string[]): Record<"cluster" | "type" | "zone", string[]> {
  const by = ["cluster", "type", "zone"] as const;
  const costs = useAnswer(
    ids.length ? (s) => each(ids, (id) => shard.getCost({ groupBy: [...by], separate: true }, at(id, s))) : undefined,
    [ids.join()],
    30_000,
  );
  const named = (i: number) => {
    const sums = new Map<string, number>();
    for (const [, r] of costs.value?.got ?? [])
      for (const row of r.points[i]?.rows ?? []) {
        const g = row.group[0] ?? "";
        sums.set(g, (sums.get(g) ?? 0) + Object.values(row.costPerHourByState).reduce((n, x) => n + x, 0));
      }
    return [...sums]
      .filter(([g]) => g)
      .sort((a, b) => b[1] - a[1])
      .map(([g]) => g);
  };
  return { cluster: named(0), type: named(1), zone: named(2) };
}
const href = (list: Edit[]) => link("/money/whatif", { edits: JSON.stringify(list) });

export function WhatIf() {
  const [q, change] = useQuery();
  const ids = useShards();
  const names = useNames(ids);
  const examples: Edit[] = [
    ...names.cluster.slice(0, 1).map((cluster): Edit => ({ do: "scale", cluster, factor: 2 })),
    ...names.zone.slice(0, 1).map((zone): Edit => ({ do: "zone", zone })),
    { do: "price", class: 4, factor: 2 },
  ];
  const list = edits(q.edits);
  const [draft, set] = useState<Edit>({ do: "scale", factor: 2 });
  const put = (next: Edit[]) => change({ edits: next.length ? JSON.stringify(next) : undefined }, true);
  const answer = useAnswer(list.length && ids.length ? (s) => each(ids, (id) => shard.plan(request(list), at(id, s))) : undefined, [
    q.edits,
    ids.join(),
  ]);
  const needs = {
    scale: ["cluster", "factor"],
    drop: ["cluster"],
    price: ["type", "zone", "class", "factor"],
    stockout: ["type", "zone", "class"],
    zone: ["zone"],
  }[draft.do];
  const ready = needs.every((k) => ["type", "class"].includes(k) || (k === "zone" && draft.do !== "zone") || !!draft[k as keyof Edit]);
  const text = (k: "cluster" | "type" | "zone") => (
    <label>
      {k}
      <input
        value={draft[k] ?? ""}
        style={{ width: "110px" }}
        list={`known-${k}`}
        onInput={(e) => set({ ...draft, [k]: e.currentTarget.value.trim() })}
      />
      <datalist id={`known-${k}`}>
        {names[k].slice(0, 200).map((x) => (
          <option key={x} value={x} />
        ))}
      </datalist>
    </label>
  );
  return (
    <>
      <form
        class="filters"
        onSubmit={(e) => {
          e.preventDefault();
          if (ready)
            put([...list, Object.fromEntries(Object.entries(draft).filter(([k, v]) => k === "do" || (needs.includes(k) && v))) as Edit]);
        }}
      >
        <Choice label="What if" value={draft.do} options={kinds} onChange={(v) => set({ ...draft, do: v as Edit["do"] })} />
        {needs.includes("cluster") && text("cluster")}
        {needs.includes("type") && text("type")}
        {needs.includes("zone") && text("zone")}
        {needs.includes("class") && (
          <Choice
            label="class"
            value={String(draft.class ?? 0)}
            options={[["0", "any"], ...[1, 2, 3, 4].map((c): [string, string] => [String(c), capacityName(c as CapacityType)])]}
            onChange={(v) => set({ ...draft, class: Number(v) })}
          />
        )}
        {needs.includes("factor") && (
          <label>
            factor
            <input
              type="number"
              min="0"
              step="0.1"
              style={{ width: "72px" }}
              value={draft.factor ?? 1}
              onInput={(e) => set({ ...draft, factor: Number(e.currentTarget.value) })}
            />
          </label>
        )}
        <button type="submit" disabled={!ready}>
          Add
        </button>
        {list.length > 0 && <Ask rpc="ShardRead/Plan" target={ids[0]} body={asJSON(list)} cli={command(list)} />}
      </form>
      {list.length === 0 ? (
        <Empty>
          Add a change to see what BigFleet would do, and what that costs. Nothing is done. The address of this page carries the changes:
          send it to somebody and they see the same.
          <ul>
            {examples.map((e) => (
              <li key={say(e)}>
                For example: <Link href={href([e])}>{say(e)}</Link>
              </li>
            ))}
          </ul>
        </Empty>
      ) : (
        <>
          <ul class="filters" style={{ listStyle: "none" }}>
            {list.map((e, i) => (
              <li key={JSON.stringify(e)}>
                <button type="button" title="Take away" onClick={() => put(list.filter((_, j) => j !== i))}>
                  <bdi>{say(e)}</bdi> ×
                </button>
              </li>
            ))}
          </ul>
          <Shown of={answer}>
            {(a) => {
              const all = a.got.map(([, r]) => r);
              const before = all.reduce((n, r) => n + r.costPerHourBefore, 0);
              const after = all.reduce((n, r) => n + r.costPerHourAfter, 0);
              const changes = a.got.flatMap(([id, r]) => r.needs.map((c) => ({ id, c })));
              const actions = all.flatMap((r) => r.actions);
              return (
                <>
                  <Missing of={a.missing} />
                  {answer.loading && <p class="dim">Planning…</p>}
                  <div class="figures">
                    <Figure label="Spend before">
                      {dollars(before)}
                      <span class="dim"> /h</span>
                    </Figure>
                    <Figure label="after">
                      {dollars(after)}
                      <span class="dim"> /h</span>
                    </Figure>
                    <Figure label="difference" tone={after > before + 1e-9 ? "short" : after < before - 1e-9 ? "met" : undefined}>
                      {after >= before ? "+" : "−"}
                      {dollars(Math.abs(after - before))}
                      <span class="dim"> /h</span>
                    </Figure>
                    <Figure label="a month">
                      {after >= before ? "+" : "−"}
                      {dollars(Math.abs(after - before) * 730)}
                    </Figure>
                    <Figure label="Needs that change">{count(changes.length)}</Figure>
                    <Figure label="Actions">{count(actions.length)}</Figure>
                  </div>
                  {all
                    .flatMap((r) => r.warnings)
                    .map((w) => (
                      <p class="note warn" key={w}>
                        <Sentence>{w}</Sentence>
                      </p>
                    ))}
                  <Section title="Needs that change">
                    {changes.length === 0 ? (
                      <Empty>No need is met better or worse.</Empty>
                    ) : (
                      <Table
                        label="Needs that change"
                        rows={changes.slice(0, 200)}
                        id={({ c }) => needName((c.after ?? c.before) as never)}
                        columns={[
                          {
                            head: "Need",
                            cell: ({ id, c }) => {
                              const n = c.after ?? c.before;
                              return n ? (
                                <Link
                                  href={opened(open.need(id, n.clusterId, n.need?.rowId ?? "", n.profileFingerprint, n.need?.group ?? ""))}
                                >
                                  <Name>{shortNeed(n)}</Name>
                                </Link>
                              ) : (
                                ""
                              );
                            },
                          },
                          {
                            head: "Requests",
                            cell: ({ c }) => {
                              const [a, z] = [amounts(c.before?.need?.aggregateResources), amounts(c.after?.need?.aggregateResources)];
                              return a === z || !a || !z ? a || z : `${a} → ${z}`;
                            },
                          },
                          {
                            head: "Before",
                            cell: ({ c }) => {
                              if (!c.before) return <span class="dim">new</span>;
                              const s = standing(c.before);
                              return <Mark shape={s.shape} word={s.word} tone={s.tone} />;
                            },
                          },
                          {
                            head: "After",
                            cell: ({ c }) => {
                              if (!c.after) return <span class="dim">gone</span>;
                              const s = standing(c.after);
                              return <Mark shape={s.shape} word={s.word} tone={s.tone} />;
                            },
                          },
                          { head: "Why", cell: ({ c }) => <Sentence>{c.after?.detailText ?? ""}</Sentence> },
                        ]}
                      />
                    )}
                  </Section>
                  <Section title="What would be done">
                    {actions.length === 0 ? <Empty>Nothing.</Empty> : <Acts rows={actions.slice(0, 300)} />}
                  </Section>
                </>
              );
            }}
          </Shown>
        </>
      )}
    </>
  );
}
export const Acts = ({ rows }: { rows: DecisionRecord[] }) => (
  <Table
    label="Actions"
    rows={rows}
    id={(r) => `${r.shardId} ${r.sequence} ${r.machineId} ${r.kind}`}
    columns={[
      { head: "Action", cell: (r) => what(r) || "plan" },
      {
        head: "Machine",
        cell: (r) => (
          <Link href={opened(open.machine(r.machineId, r.shardId))}>
            <Name>{r.machineId}</Name>
          </Link>
        ),
      },
      { head: "Cluster", cell: (r) => <Name>{r.clusterId}</Name> },
      { head: "$/h", num: true, cell: (r) => (r.pricePerHour ? dollars(r.pricePerHour) : "") },
      ...(rows.some((r) => r.detail) ? [{ head: "Why", cell: (r: DecisionRecord) => <Sentence>{r.detail}</Sentence> }] : []),
    ]}
  />
);
