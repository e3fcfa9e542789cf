// What a user of the package does, type-checked by `npm run typecheck` and run against a Connect server by the tests of
// tools/contract: a read over GET, an error with its detail, a server stream.
//
// usage: node test/client.mjs BASE_URL
import { createClient, Code, ConnectError } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { CapacityProvider, FenceDetailSchema, MachineState } from "@bigfleet/api/v1alpha1/provider";
import { ShardRead } from "@bigfleet/api/v1alpha1/shardread";

const baseUrl = process.argv[2] ?? "";
const transport = createConnectTransport({ baseUrl, useHttpGet: true });

/** @param {boolean} ok @param {string} what */
function must(ok, what) {
  if (!ok) throw new Error(what);
}

const provider = createClient(CapacityProvider, transport);
const machine = await provider.get({ id: "m-1" });
must(machine.id === "m-1" && machine.state === MachineState.IDLE, `Get answered ${machine.id}, ${machine.state}`);
must(machine.allocatable?.resources["cpu"] === "1930m", "the resources of the machine are missing");

try {
  await provider.drain({ machineId: "m-1", shardId: "shard-0", shardEpoch: 1700000000n, sequenceNumber: 7n });
  throw new Error("Drain with a stale token passed");
} catch (err) {
  const refused = ConnectError.from(err);
  must(refused.code === Code.FailedPrecondition, `Drain: ${refused.message}`);
  const [fence] = refused.findDetails(FenceDetailSchema);
  must(fence?.markSequence === 9n, "the fence detail is missing");
}

const reader = createClient(ShardRead, transport);
/** @type {string[]} */
const frames = [];
for await (const answer of reader.inspectNeeds({ clusterId: "dev" })) {
  frames.push(answer.frame.case ?? "none");
}
must(frames.join() === "header,need", `InspectNeeds sent ${frames.join()}`);
console.log("ok");
