// Records of decisions, as the server tells them.
import { ActionKind, type DecisionRecord, RecordType } from "@bigfleet/api/v1alpha1/decision";
import { Link } from "wouter-preact";
import { Name, type Point, Sentence } from "./design/parts";
import { actionName, clock, dollars, recordName, span, stateName, type Tone } from "./format";
import { open, opened } from "./url";

export const what = (r: DecisionRecord) => {
  const kind = r.kind ? actionName(r.kind) : "";
  if (r.type === RecordType.STARTED || !r.type) return kind;
  if (r.type === RecordType.ENDED) return `${kind} ended`;
  return kind ? `${kind}, ${recordName(r.type)}` : recordName(r.type);
};
export const bad = (r: DecisionRecord) =>
  (r.type === RecordType.ENDED && r.outcome !== "success" && r.outcome !== "") ||
  [
    RecordType.MACHINE_FAILED,
    RecordType.MACHINE_VANISHED,
    RecordType.MACHINE_STUCK,
    RecordType.MACHINE_REJECTED,
    RecordType.ROLLUP_REJECTED,
    RecordType.FENCE,
    RecordType.INTERRUPTION,
  ].includes(r.type);
export const kindTone: Record<number, Tone> = {
  [ActionKind.BOOTSTRAP]: "met",
  [ActionKind.PROVISION]: "way",
  [ActionKind.PREEMPT]: "short",
  [ActionKind.RECLAIM]: "held",
  [ActionKind.DELETE]: "idle",
};

/** Records without what another one of them says better: a machine that failed says why it left its state. */
export function once(rows: DecisionRecord[]): DecisionRecord[] {
  const failed = new Set(
    rows
      .filter((r) => r.type === RecordType.MACHINE_FAILED || r.type === RecordType.MACHINE_RECOVERED)
      .map((r) => `${r.shardId} ${r.cycle} ${r.machineId}`),
  );
  return rows.filter((r) => !(r.type === RecordType.UNEXPECTED_EDGE && failed.has(`${r.shardId} ${r.cycle} ${r.machineId}`)));
}

/** What is worth a line: an action that ended says what its start said. */
export function worth(rows: DecisionRecord[]): DecisionRecord[] {
  const ended = new Set(rows.filter((r) => r.type === RecordType.ENDED).map((r) => `${r.shardId} ${r.operationId}`));
  return once(rows).filter((r) => !(r.type === RecordType.STARTED && r.operationId && ended.has(`${r.shardId} ${r.operationId}`)));
}

export function Line({ r }: { r: DecisionRecord }) {
  return (
    <li>
      <span class="dim">{clock(r.atUnixNanos)}</span>
      <span>
        <b class={bad(r) ? "short" : (kindTone[r.kind] ?? "")}>{what(r)}</b>{" "}
        {r.machineId && (
          <Link href={opened(open.machine(r.machineId, r.shardId))}>
            <Name>{r.machineId}</Name>
          </Link>
        )}
        {r.clusterId && (
          <>
            {" "}
            <Link class="dim" href={opened(open.cluster(r.shardId, r.clusterId))}>
              <Name>{r.clusterId}</Name>
            </Link>
          </>
        )}
        <br />
        <Sentence>{r.detail}</Sentence>
      </span>
    </li>
  );
}

/** A record as a point of a timeline. */
export function event(r: DecisionRecord): Point {
  const states = r.fromState && r.toState && r.fromState !== r.toState ? `${stateName(r.fromState)} → ${stateName(r.toState)}` : "";
  const terms = [
    states,
    r.pricePerHour ? `${dollars(r.pricePerHour)}/h` : "",
    r.durationNanos ? `took ${span(Number(r.durationNanos / 1_000_000n))}` : "",
    r.cycle ? `cycle ${r.cycle}` : "",
  ]
    .filter(Boolean)
    .join(" · ");
  return {
    key: `${r.shardId} ${r.shardEpoch} ${r.sequence}`,
    when: `${clock(r.atUnixNanos)}  ${terms}`,
    kind: bad(r) ? "bad" : r.type === RecordType.ENDED ? "end" : undefined,
    text: (
      <>
        <b class={bad(r) ? "short" : ""}>{what(r)}</b>
        {r.clusterId && (
          <>
            {" "}
            · <Name>{r.clusterId}</Name>
          </>
        )}
        <br />
        <Sentence>{r.detail}</Sentence>
        {r.preemptorClusterId && r.preemptorRowId && (
          <>
            {" "}
            <Link href={opened(open.need(r.shardId, r.preemptorClusterId, r.preemptorRowId, "", ""))}>the need that took it</Link>
          </>
        )}
        {r.rowId && r.clusterId && (
          <>
            {" "}
            <Link href={opened(open.need(r.shardId, r.clusterId, r.rowId, "", ""))}>its need</Link>
          </>
        )}
      </>
    ),
  };
}
