import { Copy, Section } from "../design/parts";
import { count } from "../format";

/** An empty fleet says what to do next. */
export function First({ clusters, shard }: { clusters: number; shard: string }) {
  const chart = (name: string, more = "") =>
    `helm install ${name} oci://ghcr.io/bigfleet-dev/charts/${name} -n bigfleet-system --create-namespace${more}`;
  return (
    <Section title="Three steps to the first machine">
      <ol class="first">
        <li>
          {clusters > 0 ? (
            <p>
              <span class="met">●</span> Connect a cluster: {count(clusters)} {clusters === 1 ? "is" : "are"} connected.
            </p>
          ) : (
            <>
              <p>Connect a cluster. Its operator says what the cluster needs, its pod controller watches its Pods.</p>
              <Copy
                text={`${chart("bigfleet-operator", ` --set clusterID=red,shardAddress=${shard || "SHARD:7780"},bootstrap.apiServerURL=https://API-SERVER:6443`)}\n${chart("bigfleet-pod-controller")}`}
              />
            </>
          )}
        </li>
        <li>
          <p>Create Pods that fit on none of its Nodes. Their need appears here within seconds.</p>
          <Copy
            text={
              "kubectl create deployment first --image registry.k8s.io/pause:3.10 --replicas 20\nkubectl set resources deployment first --requests cpu=1"
            }
          />
        </li>
        <li>
          <p>
            While it waits, ask why. The need's page answers, too. On <code>bigfleet up</code>, a demo shows what happens under pressure.
          </p>
          <Copy text={"bigfleet get needs --unmet\nbigfleet demo critical"} />
        </li>
      </ol>
    </Section>
  );
}
