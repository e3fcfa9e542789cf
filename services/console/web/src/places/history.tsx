// History: what happened, and why?
import { ActionKind, type DecisionRecord, RecordType } from "@bigfleet/api/v1alpha1/decision";
import { Link } from "wouter-preact";
import { at, shard } from "../api";
import { Chart, chartLeft, chartRight, type Series } from "../design/chart";
import { Ask, Choice, Empty, Mark, Name, Section, Sentence, Shown, Table, Text, Waiting } from "../design/parts";
import { each, Missing, useFleet, useShards } from "../fleet";
import { actionName, clock, count, iso, needName, recordName, shortNeed, standing, type Tone } from "../format";
import { useAnswer } from "../live";
import { bad, Line, worth } from "../records";
import { link, momentOf, open, opened, useQuery } from "../url";
import { Acts } from "./whatif";

const tabs: [string, string][] = [
  ["records", "What happened"],
  ["compare", "Two moments"],
];
const kinds = [ActionKind.PROVISION, ActionKind.BOOTSTRAP, ActionKind.PREEMPT, ActionKind.RECLAIM, ActionKind.DELETE];
const tones: Record<number, Tone> = {
  [ActionKind.PROVISION]: "way",
  [ActionKind.BOOTSTRAP]: "met",
  [ActionKind.PREEMPT]: "short",
  [ActionKind.RECLAIM]: "held",
  [ActionKind.DELETE]: "idle",
};
const marks = [
  RecordType.ADMIN,
  RecordType.PROCESS,
  RecordType.BACKOFF_CHANGED,
  RecordType.INTERRUPTION,
  RecordType.SESSION_CLOSED,
  RecordType.FENCE,
  RecordType.OWNERSHIP,
  RecordType.MACHINE_VANISHED,
  RecordType.MACHINE_FAILED,
];

export function History({ tab }: { tab: string }) {
  return (
    <div class="page">
      <div class="head">
        <h1>History</h1>
      </div>
      <nav class="tabs" aria-label="History">
        {tabs.map(([k, t]) => (
          <Link key={k} href={link(`/history/${k}`)} aria-current={k === tab ? "page" : undefined}>
            {t}
          </Link>
        ))}
      </nav>
      {tab === "compare" ? <Compare /> : <Records />}
    </div>
  );
}

function Records() {
  const [q, change] = useQuery();
  const ids = useShards();
  const fleet = useFleet();
  const moment = momentOf(q);
  const over = Number(q.span ?? 900);
  const latest = fleet.value?.recent[0];
  const answer = useAnswer(
    ids.length
      ? (s) => {
          const until = moment || BigInt(Date.now()) * 1_000_000n;
          return each(ids, (id) =>
            shard.getMachineHistory(
              {
                ...(q.cluster
                  ? { subject: { case: "clusterId" as const, value: q.cluster } }
                  : q.node
                    ? { subject: { case: "nodeName" as const, value: q.node } }
                    : {}),
                sinceUnixNanos: until - BigInt(over) * 1_000_000_000n,
                untilUnixNanos: moment,
                pageSize: 5000,
              },
              at(id, s),
            ),
          );
        }
      : undefined,
    [ids.join(), moment, over, q.cluster, q.node, moment ? 0 : `${latest?.shardId} ${latest?.sequence}`],
    moment ? 0 : 10000,
  );
  const go = (t: number) => change({ at: iso(t * 1000) }, true);
  if (ids.length === 0) return <Waiting />;
  return (
    <>
      <div class="filters">
        <Choice
          label="The last"
          value={String(over)}
          options={[
            ["300", "5 minutes"],
            ["900", "15 minutes"],
            ["3600", "hour"],
            ["21600", "6 hours"],
            ["86400", "day"],
          ]}
          onChange={(v) => change({ span: v })}
        />
        <Choice
          label="Kind"
          value={q.kind ?? ""}
          options={[
            ["", "all"],
            ...kinds.map((k): [string, string] => [String(k), actionName(k)]),
            ["marks", "people, outages, restarts"],
            ["bad", "what went wrong"],
          ]}
          onChange={(v) => change({ kind: v })}
        />
        <Text label="Cluster" value={q.cluster ?? ""} onChange={(v) => change({ cluster: v, node: undefined })} />
        <Text label="Node" value={q.node ?? ""} width={180} onChange={(v) => change({ node: v, cluster: undefined })} />
        <Ask
          rpc="ShardRead/GetMachineHistory"
          target={ids[0]}
          body={q.cluster ? { clusterId: q.cluster, pageSize: 100 } : q.node ? { nodeName: q.node, pageSize: 100 } : { pageSize: 100 }}
          prom="sum by (kind) (increase(bigfleet_shard_actions_total[5m]))"
          cli={`bigfleet history${q.cluster ? ` cluster/${q.cluster}` : q.node ? ` node/${q.node}` : ""}`}
        />
      </div>
      <Shown of={answer}>
        {(a) => {
          const all = a.got.flatMap(([, r]) => r.records).sort((x, y) => Number(y.atUnixNanos - x.atUnixNanos));
          const rows = (q.kind ? all : worth(all)).filter((r) =>
            q.kind === "bad"
              ? bad(r)
              : q.kind === "marks"
                ? marks.includes(r.type)
                : q.kind
                  ? r.kind === Number(q.kind)
                  : r.type !== RecordType.ROLLUP_ACCEPTED && r.type !== RecordType.GATE_OPENED,
          );
          const end = Number((moment || BigInt(Date.now()) * 1_000_000n) / 1_000_000_000n);
          return (
            <>
              <Missing of={a.missing} />
              {a.got.some(([, r]) => r.truncated) && <p class="note info">Older records have left the log.</p>}
              {a.got.some(([, r]) => r.nextPageToken) && (
                <p class="note info">
                  There is more than one page in this span; the newest 5,000 records of each shard are shown. Choose a shorter one to see
                  all.
                </p>
              )}
              <Axis rows={all} from={end - over} to={end} onPick={go} />
              {rows.length === 0 ? (
                <Empty>Nothing of this kind is recorded in this span.</Empty>
              ) : (
                <>
                  <p class="dim">
                    {count(rows.length)} records{rows.length > 300 ? ", the newest 300 shown" : ""}
                  </p>
                  <ul class="list acts">
                    {rows.slice(0, 300).map((r) => (
                      <Line key={`${r.shardId} ${r.shardEpoch} ${r.sequence}`} r={r} />
                    ))}
                  </ul>
                </>
              )}
            </>
          );
        }}
      </Shown>
    </>
  );
}

/** Actions by kind over time, and below them a slider to any moment with marks for what people and outages did. */
function Axis({ rows, from, to, onPick }: { rows: DecisionRecord[]; from: number; to: number; onPick: (t: number) => void }) {
  const [q] = useQuery();
  const buckets = 60;
  const step = Math.max(1, (to - from) / buckets);
  const times = Array.from({ length: buckets + 1 }, (_, i) => from + i * step);
  const series: Series[] = kinds.map((k) => ({
    label: actionName(k),
    tone: tones[k] ?? "met",
    values: new Array<number>(buckets + 1).fill(0),
  }));
  for (const r of rows) {
    const s = series[kinds.indexOf(r.kind)];
    const i = Math.floor((Number(r.atUnixNanos / 1_000_000n) / 1000 - from) / step);
    if (s && r.type === RecordType.STARTED && i >= 0 && i <= buckets) s.values[i] = (s.values[i] ?? 0) + 1;
  }
  const marked = rows.filter((r) => marks.includes(r.type)).slice(0, 200);
  const place = (r: DecisionRecord) => (100 * (Number(r.atUnixNanos / 1_000_000n) / 1000 - from)) / (to - from);
  return (
    <Section title="Actions by kind" end={<span class="dim">drag, or move the slider: every page then shows that moment</span>}>
      <Chart
        stacked
        height={140}
        label="Actions over time"
        times={times}
        series={series}
        format={(n) => count(Math.round(n))}
        onPick={onPick}
      />
      <div class="axis" style={{ paddingLeft: `${chartLeft}px`, paddingRight: `${chartRight}px` }}>
        {marked.length > 0 && (
          <div class="marks" aria-hidden="true">
            {marked.map((r) => (
              <button
                type="button"
                tabIndex={-1}
                key={`${r.shardId} ${r.sequence}`}
                class={bad(r) ? "short" : "held"}
                style={{ left: `${place(r)}%` }}
                title={`${clock(r.atUnixNanos)} ${recordName(r.type)}: ${r.detail.slice(0, 300)}`}
                onClick={() => onPick(Number(r.atUnixNanos / 1_000_000n) / 1000)}
              >
                {r.type === RecordType.ADMIN ? "◆" : bad(r) ? "▲" : "◇"}
              </button>
            ))}
          </div>
        )}
        <input
          type="range"
          aria-label="Moment"
          min={from}
          max={to}
          step="1"
          value={q.at ? Date.parse(q.at) / 1000 : to}
          onChange={(e) => onPick(Number(e.currentTarget.value))}
        />
      </div>
      {marked.length > 0 && (
        <details>
          <summary>
            {count(marked.length)} {marked.length === 1 ? "mark" : "marks"}: <span class="held">◆ orders</span>,{" "}
            <span class="held">◇ restarts and sessions</span>, <span class="short">▲ outages and losses</span>
          </summary>
          <ul class="list acts">
            {marked.slice(0, 60).map((r) => (
              <li key={`${r.shardId} ${r.sequence}`}>
                <button type="button" class="quiet" onClick={() => onPick(Number(r.atUnixNanos / 1_000_000n) / 1000)}>
                  {clock(r.atUnixNanos)}
                </button>
                <span>
                  <b>{recordName(r.type)}</b> <Sentence>{r.detail}</Sentence>
                </span>
              </li>
            ))}
          </ul>
        </details>
      )}
    </Section>
  );
}

function Compare() {
  const [q, change] = useQuery();
  const ids = useShards();
  const now = Date.now();
  const fleet = useFleet();
  // five minutes, or since the newest shard runs: it remembers nothing older
  const begun = Math.max(0, ...(fleet.value?.shards ?? []).map((s) => Number(s.startedAtUnixNanos / 1_000_000n)));
  const first = q.from ? Date.parse(q.from) : Math.min(now, Math.max(now - 300_000, begun + 5000));
  const second = q.to ? Date.parse(q.to) : 0;
  const ok = !Number.isNaN(first) && !Number.isNaN(second);
  const answer = useAnswer(
    ids.length && ok
      ? (s) =>
          each(ids, (id) =>
            shard.compareCycles(
              {
                firstAtUnixNanos: BigInt(Math.round(first)) * 1_000_000n,
                secondAtUnixNanos: BigInt(Math.round(second)) * 1_000_000n,
                clusterId: q.cluster ?? "",
              },
              at(id, s),
            ),
          )
      : undefined,
    [ids.join(), q.from, q.to, q.cluster],
  );
  const field = (t: number) => (t ? new Date(t - new Date(t).getTimezoneOffset() * 60000).toISOString().slice(0, 19) : "");
  const pick = (k: "from" | "to") => (e: { currentTarget: HTMLInputElement }) => {
    const t = Date.parse(e.currentTarget.value);
    change({ [k]: Number.isNaN(t) ? undefined : iso(t) });
  };
  if (ids.length === 0) return <Waiting />;
  return (
    <>
      <div class="filters">
        <label>
          From
          <input type="datetime-local" step="1" value={field(first)} onChange={pick("from")} />
        </label>
        <label>
          to
          <input type="datetime-local" step="1" value={field(second || now)} onChange={pick("to")} />
        </label>
        {q.to && (
          <button type="button" onClick={() => change({ to: undefined })}>
            now
          </button>
        )}
        <Text label="Cluster" value={q.cluster ?? ""} onChange={(v) => change({ cluster: v })} />
        <Ask
          rpc="ShardRead/CompareCycles"
          target={ids[0]}
          body={{ firstAtUnixNanos: `${Math.round(first)}000000` }}
          cli={`bigfleet history --diff ${iso(first)},${iso(second || now)}`}
        />
      </div>
      <Shown of={answer}>
        {(a) => {
          const changes = a.got.flatMap(([id, r]) => r.needs.map((c) => ({ id, c })));
          return (
            <>
              <Missing of={a.missing} />
              <p class="dim">{a.got.map(([id, r]) => `${id}: cycle ${r.firstCycle} to ${r.secondCycle}`).join(" · ")}</p>
              <Section title="Needs that changed">
                {changes.length === 0 ? (
                  <Empty>No need changed between the two moments.</Empty>
                ) : (
                  <Table
                    label="Needs that changed"
                    rows={changes.slice(0, 300)}
                    id={({ id, c }) => `${id} ${needName((c.after ?? c.before) as never)}`}
                    columns={[
                      {
                        head: "Need",
                        cell: ({ id, c }) => {
                          const n = c.after ?? c.before;
                          return n ? (
                            <Link href={opened(open.need(id, n.clusterId, n.need?.rowId ?? "", n.profileFingerprint, n.need?.group ?? ""))}>
                              <Name>{shortNeed(n)}</Name>
                            </Link>
                          ) : (
                            ""
                          );
                        },
                      },
                      {
                        head: "Then",
                        cell: ({ c }) => {
                          if (!c.before) return <span class="dim">not there</span>;
                          const s = standing(c.before);
                          return <Mark shape={s.shape} word={s.word} tone={s.tone} />;
                        },
                      },
                      {
                        head: "Later",
                        cell: ({ c }) => {
                          if (!c.after) return <span class="dim">gone</span>;
                          const s = standing(c.after);
                          return <Mark shape={s.shape} word={s.word} tone={s.tone} />;
                        },
                      },
                      { head: "Why", cell: ({ c }) => <Sentence>{c.after?.detailText ?? c.before?.detailText ?? ""}</Sentence> },
                    ]}
                  />
                )}
              </Section>
              <Section title="Only in the later plan">
                <Plans rows={a.got.flatMap(([, r]) => r.added)} />
              </Section>
              <Section title="Only in the earlier plan">
                <Plans rows={a.got.flatMap(([, r]) => r.removed)} />
              </Section>
            </>
          );
        }}
      </Shown>
    </>
  );
}
const Plans = ({ rows }: { rows: DecisionRecord[] }) => (rows.length === 0 ? <Empty>Nothing.</Empty> : <Acts rows={rows.slice(0, 200)} />);
