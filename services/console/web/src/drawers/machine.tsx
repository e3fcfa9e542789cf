// One machine's life: what it is, why it is kept, and everything that happened to it, with money on it.
import type { WatchMachineResponse } from "@bigfleet/api/v1alpha1/console";
import { ActionKind, type DecisionRecord, RecordType } from "@bigfleet/api/v1alpha1/decision";
import type { GetMachineResponse } from "@bigfleet/api/v1alpha1/shardread";
import { Link } from "wouter-preact";
import { live } from "../api";
import { Ask, Empty, Facts, Mark, Name, Section, Sentence, Timeline, Waiting } from "../design/parts";
import { amounts, capacityName, clock, dollars, many, ms, since, stateName, toneOf } from "../format";
import { useFlow, useNow } from "../live";
import { event, once } from "../records";
import { RetryOrder } from "../orders/orders";
import { open, opened } from "../url";
import { Sheet } from "./sheet";

type State = { machine: GetMachineResponse | undefined; records: DecisionRecord[] };

/** What it has cost since it was last bought, as far as its records tell. */
function spent(records: DecisionRecord[], price: number, now: number): string {
  const bought = records.filter((r) => r.kind === ActionKind.PROVISION && r.type === RecordType.ENDED && r.outcome === "success").at(-1);
  const gone = records.filter((r) => r.kind === ActionKind.DELETE && r.type === RecordType.ENDED).at(-1);
  if (!bought || !price || (gone && gone.atUnixNanos > bought.atUnixNanos)) return "";
  const hours = (now - ms(bought.atUnixNanos)) / 3_600_000;
  return `about ${dollars(price * hours)} since it was bought at ${clock(bought.atUnixNanos)}, at its present price`;
}

export function MachineDrawer({ shardId, id }: { shardId: string; id: string }) {
  const now = useNow(1000);
  const flow = useFlow<WatchMachineResponse, State>(
    () => ({ machine: undefined, records: [] }),
    (signal) => live.watchMachine({ machineId: id, shardId }, { signal }),
    (s, m) => ({ machine: m.machine ?? s.machine, records: m.records.length ? [...s.records, ...m.records] : s.records }),
    [id, shardId],
  );
  const v = flow.value?.machine?.machine;
  const m = v?.machine;
  const kept = flow.value?.machine;
  return (
    <Sheet
      title={id}
      kind="machine"
      end={
        <Ask
          rpc="ShardRead/GetMachineHistory"
          body={{ machineId: id }}
          target={v?.shardId || shardId}
          cli={`bigfleet history machine/${id}`}
        />
      }
    >
      {flow.lost && (
        <p class={`note ${flow.value ? "warn" : "bad"}`} role="status">
          {flow.value ? "Not live: connecting again. " : ""}
          {flow.lost}
        </p>
      )}
      {!flow.value && !flow.lost && <Waiting />}
      {flow.value && !v && <p class="note info">The machine is gone. This is what was recorded of it.</p>}
      {v && m && (
        <>
          <p>
            <Mark word={stateName(m.state)} tone={toneOf(m.state)} />{" "}
            <span class="dim">
              for {v.stateSinceStart && "at least "}
              {since(v.stateSinceUnixNanos, now)}
            </span>{" "}
            {kept?.keepText && <Sentence>{kept.keepText}</Sentence>} <RetryOrder shardId={v.shardId} machineId={id} />
          </p>
          {m.lastError && !kept?.keepText.includes(m.lastError) && (
            <p class="note bad">
              <Sentence>{m.lastError}</Sentence>
            </p>
          )}
          {kept?.drain && (
            <p class="note warn">
              Draining: {many(kept.drain.podsLeft, "Pod")} left until {clock(kept.drain.deadlineUnixNanos)}
              {kept.drain.blockingBudgets.length > 0 && <>. Budgets that refuse: {kept.drain.blockingBudgets.join(", ")}</>}.
            </p>
          )}
          <Facts
            of={[
              ["Type", `${m.instanceType} · ${capacityName(m.capacityType)}`],
              ["Where", `${m.zone} · provider ${v.provider}`],
              [
                "Cluster",
                m.cluster && (
                  <Link href={opened(open.cluster(v.shardId, m.cluster))}>
                    <Name>{m.cluster}</Name>
                  </Link>
                ),
              ],
              [
                "Need",
                kept?.rowId && (m.cluster || v.intendedClusterId) && (
                  <Link href={opened(open.need(v.shardId, m.cluster || v.intendedClusterId, kept.rowId, "", ""))}>
                    <Name>{kept.rowId}</Name>
                  </Link>
                ),
              ],
              ["Node", v.nodeName && `${v.nodeName}${v.nodeReady ? ", ready" : ", not ready"}`],
              ["Price", `${dollars(m.pricePerHour)}/h`],
              ["So far", spent(flow.value?.records ?? [], m.pricePerHour, now)],
              [
                "Interruption",
                m.interruptionProbability ? `${(100 * m.interruptionProbability).toFixed(1)} % an hour, says its provider` : "",
              ],
              [
                "Seen",
                kept?.seenInterruptions &&
                  `${many(kept.seenInterruptions.interruptions, "interruption")} in ${kept.seenInterruptions.machineHours < 0.1 ? "less than 0.1" : kept.seenInterruptions.machineHours.toFixed(1)} machine-hours of its pool`,
              ],
              ["Offers", amounts(m.allocatable?.resources ?? m.resources?.resources)],
              [
                "Labels",
                Object.entries(m.labels)
                  .slice(0, 40)
                  .map(([k, x]) => (
                    <div key={k}>
                      <bdi class="mono">{`${k}=${x}`.slice(0, 300)}</bdi>
                    </div>
                  )),
              ],
            ]}
          />
        </>
      )}
      {flow.value && (
        <Section title="What happened to it, and why" end={<span class="dim">newest first</span>}>
          {flow.value.records.length === 0 ? (
            <Empty>Nothing is recorded yet.</Empty>
          ) : (
            <Timeline events={once(flow.value.records).reverse().map(event)} />
          )}
        </Section>
      )}
    </Sheet>
  );
}
