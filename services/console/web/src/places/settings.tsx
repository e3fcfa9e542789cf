import { admin, live } from "../api";
import { Ask, Empty, Facts, Name, Section, Shown, Table } from "../design/parts";
import { useFleet } from "../fleet";
import { count, since } from "../format";
import { useAnswer } from "../live";

export function Settings() {
  const flow = useFleet();
  const providers = useAnswer((s) => admin.listProviders({}, { signal: s }), [], 10000);
  const quotas = useAnswer((s) => admin.listQuotas({}, { signal: s }), [], 10000);
  const sources = useAnswer((s) => live.getSources({}, { signal: s }), []);
  return (
    <>
      <Section title="This console">
        <Shown of={sources}>
          {(s) => (
            <Facts
              of={[
                ["You", s.user || "unknown: this console does not ask users for a name"],
                [
                  "Orders",
                  s.writesAllowed
                    ? "You may pause, resume, retry a machine, try again, and accept a held report."
                    : s.user
                      ? "You may look. --writers lists who may give orders."
                      : "None here: the command line gives them.",
                ],
                ["Sources", count(s.sources.length)],
                ["Address", location.origin],
              ]}
            />
          )}
        </Shown>
      </Section>
      <Section title="Versions">
        <Facts
          of={[
            [
              "Coordinator",
              flow.value?.fleet ? `${flow.value.fleet.healthyVoters} of ${flow.value.fleet.voters} voters answer` : "no answer",
            ],
            ...(flow.value?.shards ?? []).map((s): [string, string] => [
              s.shardId,
              `${s.version}, started ${since(s.startedAtUnixNanos)} ago, epoch ${s.shardEpoch}`,
            ]),
          ]}
        />
      </Section>
      <Section title="Providers" end={<Ask rpc="CoordinatorAdmin/ListProviders" cli="bigfleet providers list" />}>
        <Shown of={providers} empty={(a) => a.providers.length === 0 && <Empty>The coordinator knows no provider yet.</Empty>}>
          {(a) => (
            <Table
              label="Providers"
              rows={a.providers}
              id={(p) => p.name}
              columns={[
                { head: "Provider", cell: (p) => <Name>{p.name}</Name> },
                { head: "Addresses", cell: (p) => p.addresses.join(", ") },
                { head: "Region", cell: (p) => p.region },
                { head: "Partitioned by", cell: (p) => p.partitionKeys.join(", ") },
                { head: "Default owner", cell: (p) => p.defaultOwner || "the first registered" },
                { head: "Shards", cell: (p) => p.shardIds.join(", ") },
              ]}
            />
          )}
        </Shown>
      </Section>
      <Section title="Quotas" end={<Ask rpc="CoordinatorAdmin/ListQuotas" cli="bigfleet quota list" />}>
        <Shown of={quotas} empty={(a) => a.quotas.length === 0 && <Empty>No quota is declared.</Empty>}>
          {(a) => (
            <Table
              label="Quotas"
              rows={a.quotas}
              id={(x) => `${x.provider} ${x.region}`}
              columns={[
                { head: "Provider", cell: (x) => x.provider },
                { head: "Region", cell: (x) => x.region || "unknown" },
                { head: "Declared", num: true, cell: (x) => count(x.declared) },
                {
                  head: "Slices",
                  cell: (x) =>
                    Object.entries(x.slices)
                      .map(([k, n]) => `${k} ${n}`)
                      .join(", "),
                },
              ]}
            />
          )}
        </Shown>
      </Section>
    </>
  );
}
