// One Pod's path, from its creation until it was ready.
import { Link } from "wouter-preact";
import { live } from "../api";
import { Ask, Bar, Section, Sentence, Shown, Timeline } from "../design/parts";
import { clock, ms, quote, span, type Tone } from "../format";
import { useAnswer } from "../live";
import { open, opened } from "../url";
import { Sheet } from "./sheet";

const tones: Tone[] = ["idle", "idle", "held", "way", "way", "met", "met", "met"];

export function PodDrawer({ cluster, ns, name }: { cluster: string; ns: string; name: string }) {
  const answer = useAnswer(
    (signal) => live.getPodPath({ clusterId: cluster, namespace: ns, pod: name }, { signal }),
    [cluster, ns, name],
    3000,
  );
  return (
    <Sheet
      title={`${ns}/${name}`}
      kind="pod"
      end={
        <Ask
          rpc="Console/GetPodPath"
          body={{ clusterId: cluster, namespace: ns, pod: name }}
          cli={`bigfleet explain pod/${ns}/${name} --kube-context ${quote(cluster)}`}
        />
      }
    >
      <Shown of={answer}>
        {(p) => {
          const first = p.hops.find((h) => h.atUnixNanos)?.atUnixNanos ?? 0n;
          let before = first;
          const steps = p.hops
            .filter((h) => h.atUnixNanos >= first && h.atUnixNanos > 0n)
            .map((h) => {
              const took = h.atUnixNanos > before ? ms(h.atUnixNanos - before) : 0;
              before = h.atUnixNanos > before ? h.atUnixNanos : before;
              return { h, took };
            });
          return (
            <>
              <p>
                <Sentence>{p.sentence}</Sentence>
              </p>
              <p>
                {p.rowId && <Link href={opened(open.need(p.shardId, cluster, p.rowId, "", ""))}>its need, and why</Link>}{" "}
                {p.machineId && <Link href={opened(open.machine(p.machineId, p.shardId))}>its machine</Link>}{" "}
                <Link href={opened(open.cluster(p.shardId, cluster))}>cluster {cluster}</Link>
              </p>
              <Section title="Where the time went" end={<span class="dim">{span(ms(before - first))} in all</span>}>
                <Bar
                  legend
                  label="Time of each hop"
                  parts={steps
                    .filter((s) => s.took > 0)
                    .map((s) => ({ label: s.h.hop, size: s.took, tone: tones[p.hops.indexOf(s.h)] ?? "dim", text: span(s.took) }))}
                />
              </Section>
              <Section title="Hop by hop" end={<span class="dim">the cluster tells whole seconds</span>}>
                <Timeline
                  events={p.hops
                    .map((h, i) => ({ ...h, todo: !p.hops.slice(i).some((x) => x.atUnixNanos > 0n) }))
                    .map((h) => ({
                      key: h.hop,
                      when: h.atUnixNanos
                        ? `${clock(h.atUnixNanos)}  ${h.atUnixNanos < first ? "before the Pod" : `+${span(ms(h.atUnixNanos - first))}`}`
                        : h.todo
                          ? "not yet"
                          : "not needed",
                      kind: h.atUnixNanos ? "end" : h.todo ? "todo" : undefined,
                      text: (
                        <>
                          <b>{h.hop}</b>
                          <br />
                          <Sentence>{h.sentence}</Sentence>
                        </>
                      ),
                    }))}
                />
              </Section>
            </>
          );
        }}
      </Shown>
    </Sheet>
  );
}
