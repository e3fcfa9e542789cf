// Now, as it was at another moment.
import type { NeedView } from "@bigfleet/api/v1alpha1/shardread";
import { Link } from "wouter-preact";
import { at, shard } from "../api";
import { Ask, Empty, Mark, Name, Section, Sentence, Shown, Waiting } from "../design/parts";
import { each, Missing, useShards } from "../fleet";
import { shortNeed, since, standing } from "../format";
import { useAnswer } from "../live";
import { Line } from "../records";
import { open, opened } from "../url";
import { Selectable } from "./calm";

export const needLink = (shardId: string, n: NeedView) =>
  opened(open.need(shardId, n.clusterId, n.need?.rowId ?? "", n.profileFingerprint, n.need?.group ?? ""));

/** The same picture of another moment: needs as they stood, and what was done in the minutes before. */
export function Then({ moment }: { moment: bigint }) {
  const ids = useShards();
  const needs = useAnswer(
    ids.length
      ? (s) =>
          each(ids, async (id) => {
            const rows: NeedView[] = [];
            for await (const f of shard.inspectNeeds({ atUnixNanos: moment, unsatisfiedOnly: true, limit: 200 }, at(id, s)))
              if (f.frame.case === "need") rows.push(f.frame.value);
            return rows;
          })
      : undefined,
    [ids.join(), moment],
  );
  const acts = useAnswer(
    ids.length ? (s) => each(ids, (id) => shard.getMachineHistory({ untilUnixNanos: moment, pageSize: 40 }, at(id, s))) : undefined,
    [ids.join(), moment],
  );
  return (
    <div class="page">
      <div class="head">
        <h1>As it was</h1>
        <span class="end">
          <Ask
            rpc="ShardRead/GetMachineHistory"
            target={ids[0]}
            body={{ untilUnixNanos: moment, pageSize: 40 }}
            cli={`bigfleet get needs --unmet --at ${new Date(Number(moment / 1_000_000n)).toISOString()}`}
          />
        </span>
      </div>
      <div class="columns">
        <Section title="What waited">
          {ids.length === 0 ? (
            <Waiting />
          ) : (
            <Shown of={needs}>
              {(a) => {
                const rows = a.got.flatMap(([id, r]) => r.map((n) => ({ id, n })));
                return (
                  <>
                    <Missing of={a.missing} />
                    {rows.length === 0 && <Empty>Nothing waited.</Empty>}
                    <Selectable rows={rows} href={(w) => needLink(w.id, w.n)}>
                      {({ id, n }) => {
                        const s = standing(n);
                        return (
                          <>
                            <Mark shape={s.shape} word={s.word} tone={s.tone} />
                            <span>
                              <Link href={needLink(id, n)}>
                                <Name>{shortNeed(n)}</Name>
                              </Link>
                              <br />
                              <Sentence>{n.detailText}</Sentence>
                            </span>
                            <span class="dim num">{since(n.unmetSinceUnixNanos, Number(moment / 1_000_000n))}</span>
                          </>
                        );
                      }}
                    </Selectable>
                  </>
                );
              }}
            </Shown>
          )}
        </Section>
        <Section title="What had just happened">
          {ids.length === 0 ? (
            <Waiting />
          ) : (
            <Shown of={acts}>
              {(a) => {
                const rows = a.got
                  .flatMap(([, r]) => r.records)
                  .sort((x, y) => Number(y.atUnixNanos - x.atUnixNanos))
                  .slice(0, 40);
                return (
                  <>
                    <Missing of={a.missing} />
                    {rows.length === 0 && <Empty>Nothing is recorded of that time.</Empty>}
                    <ul class="list acts">
                      {rows.map((r) => (
                        <Line key={`${r.shardId} ${r.sequence}`} r={r} />
                      ))}
                    </ul>
                  </>
                );
              }}
            </Shown>
          )}
        </Section>
      </div>
    </div>
  );
}
