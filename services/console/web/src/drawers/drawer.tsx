// The drawer keeps the page and shows one thing.
import { parts, useQuery } from "../url";
import { ClusterDrawer } from "./cluster";
import { MachineDrawer } from "./machine";
import { NeedDrawer } from "./need";
import { PodDrawer } from "./pod";
import { ShardDrawer } from "./shard";
import { Sheet } from "./sheet";

export function Drawer() {
  const [q] = useQuery();
  if (!q.open) return null;
  const [kind, a = "", b = "", c = "", d = "", e = ""] = [parts(q.open)[0], ...parts(q.open).slice(1)];
  switch (kind) {
    case "machine":
      return <MachineDrawer key={q.open} shardId={a} id={b} />;
    case "need":
      return <NeedDrawer key={q.open} shardId={a} cluster={b} row={c} print={d} group={e} />;
    case "cluster":
      return <ClusterDrawer key={q.open} shardId={a} id={b} />;
    case "shard":
      return <ShardDrawer key={q.open} id={a} />;
    case "pod":
      return <PodDrawer key={q.open} cluster={a} ns={b} name={c} />;
  }
  return (
    <Sheet title="There is no such thing.">
      <p>The link is damaged.</p>
    </Sheet>
  );
}
