// Demand: who wants what, and who gets it? Needs in order of precedence, with the line below which they are short.
import type { FleetNeed, NeedSummary, WatchNeedsResponse } from "@bigfleet/api/v1alpha1/console";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useLocation } from "wouter-preact";
import { at, live, shard } from "../api";
import { Aged, Ask, Bar, Choice, Empty, Mark, Name, Sentence, Shown, Text, Waiting } from "../design/parts";
import { Cell, Head, Rows } from "../design/rows";
import { each, Missing, useFleet, useShards } from "../fleet";
import { amounts, count, needName, quote, shortRow, since, standing, value } from "../format";
import { useAnswer, useFlow, useNow } from "../live";
import { momentOf, open, opened, useQuery } from "../url";

type Book = {
  asked: string;
  rows: Map<string, FleetNeed>;
  keys: string[];
  summary: NeedSummary | undefined;
  complete: boolean;
  at: number;
};
/** A ladder of any length: only rows near the window are at hand. */
type List = {
  count: number;
  tally: Record<string, number>;
  cut: number;
  largest: number;
  row: (i: number) => FleetNeed | undefined;
  want?: (first: number, last: number) => void;
  busy?: boolean;
  over?: (on: boolean) => void;
  held?: boolean;
  at?: number;
};

export function Demand() {
  const [q, change] = useQuery();
  const moment = momentOf(q);
  const shards = useShards();
  return (
    <div class="page" style={{ height: "100%" }}>
      <div class="head">
        <h1>Demand</h1>
        <span class="dim">in order of precedence: who stands higher is served first</span>
        <span class="end">
          <Ask
            cli={`bigfleet get needs${q.cluster ? ` --cluster ${quote(q.cluster)}` : ""}${q.show === "waiting" ? " --unmet" : ""}${moment ? ` --at ${new Date(Number(moment / 1_000_000n)).toISOString()}` : ""}`}
            prom="sum by (reason) (bigfleet_shard_needs_unmet)"
          />
        </span>
      </div>
      <div class="filters">
        <Choice
          label="Show"
          value={q.show ?? ""}
          options={[
            ["", "all"],
            ["waiting", "what waits"],
            ["met", "met"],
            ["on the way", "on the way"],
            ["held back", "held back"],
            ["short", "short"],
          ]}
          onChange={(v) => change({ show: v })}
        />
        <Text label="Cluster" value={q.cluster ?? ""} onChange={(v) => change({ cluster: v })} />
        <Choice
          label="Shard"
          value={q.shard ?? ""}
          options={[["", "all"], ...shards.map((s): [string, string] => [s, s])]}
          onChange={(v) => change({ shard: v })}
        />
        <Text label="Priority from" value={q.priority ?? ""} width={80} onChange={(v) => change({ priority: v })} />
        <Text label="Reason has" value={q.reason ?? ""} onChange={(v) => change({ reason: v })} />
        <label>
          <input type="checkbox" checked={q.gang === "1"} onChange={(e) => change({ gang: e.currentTarget.checked ? "1" : undefined })} />
          gangs only
        </label>
      </div>
      {moment ? <Past moment={moment} /> : <Live />}
    </div>
  );
}

const windowRows = 240;

function Live() {
  const [q] = useQuery();
  const asked = JSON.stringify([q.cluster, q.shard, q.show, q.priority, q.reason, q.gang]);
  const [place, move] = useState({ asked, offset: 0 });
  const offset = place.asked === asked ? place.offset : 0;
  const settle = useRef(0);
  const [held, hold] = useState<Book>(); // the order while the pointer is on the rows: they keep their place
  useEffect(() => () => clearTimeout(settle.current), []);
  const flow = useFlow<WatchNeedsResponse, Book>(
    () => ({ asked, rows: new Map(), keys: [], summary: undefined, complete: false, at: 0 }),
    (signal) =>
      live.watchNeeds(
        {
          clusterId: q.cluster ?? "",
          shardId: q.shard ?? "",
          standing: q.show ?? "",
          textPart: q.reason ?? "",
          gangsOnly: q.gang === "1",
          window: { offset, limit: windowRows },
          ...(q.priority && Number.isInteger(Number(q.priority)) ? { minPriority: Number(q.priority) } : {}),
        },
        { signal },
      ),
    (b, m) => {
      for (const r of m.upserts) b.rows.set(r.key, r);
      for (const k of m.removedKeys) b.rows.delete(k);
      return {
        ...b,
        keys: m.summary?.keys.length || m.summary?.total === 0 ? m.summary.keys : b.keys,
        summary: m.summary ?? b.summary,
        complete: b.complete || m.snapshotComplete,
        at: Date.now() - Number(m.ageMillis),
      };
    },
    [asked, offset],
    true,
  );
  const book = flow.value;
  const over = useRef(false);
  const keep = () => hold(over.current && book ? { ...book, rows: new Map(book.rows) } : undefined);
  useEffect(keep, [asked, book?.summary?.offset]); // a scroll below the pointer comes to other rows
  if (!book?.summary)
    return flow.lost ? (
      <p class="note bad" role="alert">
        {flow.lost}
      </p>
    ) : (
      <Waiting what="Reading the needs…" />
    );
  const { summary } = book;
  const kept = held?.asked === asked && held.summary?.offset === summary.offset ? held : undefined;
  const list: List = {
    at: book.at,
    count: summary.total,
    tally: summary.byStanding,
    cut: summary.cut - 1,
    largest: Math.max(1, summary.largestCpu),
    busy: book.asked !== asked,
    row: (i) => {
      const key = (kept ?? book).keys[i - summary.offset] ?? "";
      return book.rows.get(key) ?? kept?.rows.get(key);
    },
    over: (on) => {
      over.current = on;
      keep();
    },
    held: !!kept && kept.keys.some((k, i) => k !== book.keys[i]),
    want: (first, last) => {
      if (first >= summary.offset && last < summary.offset + windowRows) return;
      if (summary.offset + windowRows >= summary.total && first >= summary.offset) return;
      clearTimeout(settle.current); // while the list is scrolled fast, no window is asked for
      settle.current = window.setTimeout(() => move({ asked, offset: Math.max(0, first - 90) }), 60);
    },
  };
  return (
    <>
      {flow.lost && (
        <p class="note warn" role="status">
          Not live, connecting again. {flow.lost}
        </p>
      )}
      <Ladder key={book.asked} list={list} complete={book.complete} />
    </>
  );
}

function Past({ moment }: { moment: bigint }) {
  const ids = useShards();
  const [q] = useQuery();
  const answer = useAnswer(
    ids.length
      ? (s) =>
          each(ids, async (id) => {
            const rows: FleetNeed[] = [];
            for await (const f of shard.inspectNeeds({ atUnixNanos: moment, clusterId: q.cluster ?? "", limit: 50000 }, at(id, s)))
              if (f.frame.case === "need") rows.push({ key: `${id} ${rows.length}`, shardId: id, need: f.frame.value } as FleetNeed);
            return rows;
          })
      : undefined,
    [ids.join(), moment, q.cluster],
  );
  if (ids.length === 0) return <Waiting />;
  return (
    <Shown of={answer}>
      {(a) => (
        <>
          <Missing of={a.missing} />
          <Then rows={a.got.flatMap(([, r]) => r)} />
        </>
      )}
    </Shown>
  );
}

/** The ladder of another moment: all its rows are here. */
function Then({ rows }: { rows: FleetNeed[] }) {
  const [q] = useQuery();
  const list = useMemo((): List => {
    const least = q.priority ? Number(q.priority) : Number.NEGATIVE_INFINITY;
    const part = (q.reason ?? "").toLowerCase();
    const shown = rows
      .filter((r) => {
        const n = r.need;
        if (!n || (q.shard && r.shardId !== q.shard)) return false;
        const word = standing(n).word;
        return (
          (!q.show || (q.show === "waiting" ? !n.satisfied : word === q.show)) &&
          (Number.isNaN(least) || (n.need?.priority ?? 0) >= least) &&
          (!part || n.detailText.toLowerCase().includes(part)) &&
          (q.gang !== "1" || !!n.need?.requirements.some((x) => x.operator === 5))
        );
      })
      .sort(
        (a, b) =>
          (b.need?.need?.priority ?? 0) - (a.need?.need?.priority ?? 0) ||
          Number((a.need?.arrivalUnixNanos ?? 0n) - (b.need?.arrivalUnixNanos ?? 0n)) ||
          (a.key < b.key ? -1 : 1),
      );
    const tally: Record<string, number> = {};
    for (const r of shown) if (r.need) tally[standing(r.need).word] = (tally[standing(r.need).word] ?? 0) + 1;
    return {
      count: shown.length,
      tally,
      cut: shown.findIndex((r) => r.need && standing(r.need).word === "short"),
      largest: shown.reduce((n, r) => Math.max(n, size(r)), 1),
      row: (i) => shown[i],
    };
  }, [rows, q.show, q.priority, q.reason, q.shard, q.gang]);
  return <Ladder list={list} complete />;
}

function Ladder({ list, complete }: { list: List; complete: boolean }) {
  const [q] = useQuery();
  const [, go] = useLocation();
  const now = useNow();
  const fleet = useFleet();
  const { cut, tally } = list;
  const filtered = !!(q.cluster || q.shard || q.show || q.priority || q.reason || q.gang);
  const href = (i: number) => {
    const r = list.row(i);
    const n = r?.need;
    return r && n ? opened(open.need(r.shardId, n.clusterId, n.need?.rowId ?? "", n.profileFingerprint, n.need?.group ?? "")) : "";
  };
  const tones = { met: "met", "on the way": "way", "held back": "held", short: "short" } as const;
  if (complete && list.count === 0 && !filtered)
    return (
      <Empty>
        {Number(fleet.value?.needs ?? 0n) > 0
          ? "Nothing matches."
          : "Nothing asks for capacity. A cluster's operator reports its needs here within seconds of the first Pod."}
      </Empty>
    );
  if (!complete && list.count === 0) return <Waiting what="Reading the needs…" />;
  return (
    <>
      {!complete && (
        <p class="dim" role="status">
          {count(list.count)} read so far…
        </p>
      )}
      <Bar
        legend
        label="Needs"
        parts={(Object.keys(tones) as (keyof typeof tones)[]).map((k) => ({ label: k, size: tally[k] ?? 0, tone: tones[k] }))}
      />
      <p class="dim" role="status">
        {list.held ? (
          <span class="way">The order has changed. It is shown when the pointer leaves the rows.</span>
        ) : q.show ? (
          `${count(list.count)} match`
        ) : cut < 0 ? (
          "No need is short."
        ) : (
          <>
            <span class="short">The cut</span> is at row {count(cut + 1)}: the first need that is short. Needs below it that request other
            machines may still be met.
          </>
        )}
        {list.at ? <Aged at={list.at} before=" · " /> : null}
      </p>
      {list.count === 0 ? (
        <Empty>No need matches these filters.</Empty>
      ) : (
        <Rows
          kind="ladder"
          {...(list.over ? { onOver: list.over } : {})}
          label="Needs in order of precedence"
          count={list.count}
          busy={!!list.busy}
          {...(list.want ? { onRange: list.want } : {})}
          cut={cut > 0 ? cut : undefined}
          onOpen={(i) => go(href(i))}
          head={
            <>
              <Head num>Priority</Head>
              <Head>State</Head>
              <Head>Need</Head>
              <Head wide>Requests</Head>
              <Head wide>Covered</Head>
              <Head>Why</Head>
              <Head num wide>
                Waits
              </Head>
            </>
          }
          row={(i) => {
            const r = list.row(i);
            const n = r?.need;
            if (!n)
              return (
                <Cell>
                  <span class="dim">…</span>
                </Cell>
              );
            const s = standing(n);
            return (
              <>
                <Cell num>{count(n.need?.priority ?? 0)}</Cell>
                <Cell>
                  <Mark shape={s.shape} word={s.word} tone={s.tone} />
                </Cell>
                <Cell>
                  <a
                    href={href(i)}
                    onClick={(e) => {
                      e.preventDefault();
                      go(href(i));
                    }}
                  >
                    <Name>{`${n.clusterId}/${shortRow(n)}`}</Name>
                  </a>
                </Cell>
                <Cell wide>
                  <span title={amounts(n.need?.aggregateResources)}>{amounts(n.need?.aggregateResources)}</span>
                </Cell>
                <Cell wide>
                  <span style={{ display: "block", width: `${Math.max(12, 100 * Math.sqrt(size(r) / list.largest))}%` }}>
                    <Bar
                      thin
                      label={needName(n)}
                      total={1000}
                      parts={
                        n.satisfied
                          ? [{ label: s.word, size: 1000, tone: s.tone }]
                          : [
                              { label: "covered", size: n.coveragePerMille, tone: "met", text: `${n.coveragePerMille / 10} %` },
                              { label: s.word, size: 1000 - n.coveragePerMille, tone: s.tone },
                            ]
                      }
                    />
                  </span>
                </Cell>
                <Cell>
                  <span title={n.detailText.slice(0, 1000)}>
                    <Sentence>{n.detailText}</Sentence>
                  </span>
                </Cell>
                <Cell num wide>
                  {n.satisfied ? "" : since(n.unmetSinceUnixNanos, now)}
                </Cell>
              </>
            );
          }}
        />
      )}
    </>
  );
}
const size = (r: FleetNeed | undefined) => value(r?.need?.need?.aggregateResources.cpu) || 1;
