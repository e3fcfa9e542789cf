// The orders of the console. Each is checked by the shard first, and its effect is what the engine or the shard says.
import type { ActionKind } from "@bigfleet/api/v1alpha1/decision";
import type { Pause } from "@bigfleet/api/v1alpha1/shardread";
import { at, order, shard } from "../api";
import { actionName, count, dollars } from "../format";
import { Order } from "./order";

type Scope = { shardId: string; clusterId?: string; provider?: string; when?: boolean };
const aboutOf = (s: Scope) =>
  [s.clusterId && `cluster ${s.clusterId}`, s.provider && `provider ${s.provider}`, `shard ${s.shardId}`].filter(Boolean).join(" of ");

/** What the engine would start now, with or without the pauses that are in force. */
async function next(s: Scope, liftPauses: boolean): Promise<string> {
  const plan = await shard.plan({ liftPauses, clusterId: s.clusterId ?? "" }, at(s.shardId));
  const kinds = new Map<ActionKind, number>();
  for (const a of plan.actions) if (a.kind) kinds.set(a.kind, (kinds.get(a.kind) ?? 0) + 1);
  if (kinds.size === 0) return "nothing";
  const cost = plan.costPerHourAfter - plan.costPerHourBefore;
  return `${[...kinds].map(([k, n]) => `${count(n)} ${actionName(k)}`).join(", ")}${Math.abs(cost) >= 0.005 ? `, ${cost < 0 ? "−" : "+"}${dollars(Math.abs(cost))}/h` : ""}`;
}

export const PauseOrder = (s: Scope) => (
  <Order
    verb="Pause"
    about={aboutOf(s)}
    check={async (reason) => {
      await order.pauseActuation({ clusterId: s.clusterId ?? "", provider: s.provider ?? "", reason, validateOnly: true }, at(s.shardId));
      return `No action starts any more until somebody resumes; what runs ends, and machines in use stay. In the next cycle the shard${s.clusterId ? " would start for this cluster" : " would start"}: ${await next(s, false)}.`;
    }}
    give={async (reason) => {
      const p = await order.pauseActuation({ clusterId: s.clusterId ?? "", provider: s.provider ?? "", reason }, at(s.shardId));
      return `Paused. Resume stands beside the pause ${p.pause?.pauseId ?? ""}.`;
    }}
  />
);

export const ResumeOrder = ({ shardId, pause }: { shardId: string; pause: Pause }) => (
  <Order
    verb="Resume"
    about={aboutOf({ shardId, clusterId: pause.clusterId, provider: pause.provider })}
    check={async (reason) => {
      await order.resumeActuation({ pauseId: pause.pauseId, reason, validateOnly: true }, at(shardId));
      return `Actions start again. Without any pause the next cycle would start: ${await next({ shardId, clusterId: pause.clusterId }, true)}.`;
    }}
    give={async (reason) => {
      const left = (await order.resumeActuation({ pauseId: pause.pauseId, reason }, at(shardId))).remaining.length;
      return left ? `Resumed. ${count(left)} other ${left === 1 ? "pause is" : "pauses are"} in force on this shard.` : "Resumed.";
    }}
  />
);

export const RetryOrder = ({ shardId, machineId }: { shardId: string; machineId: string }) => (
  <Order
    verb="Retry"
    about={`machine ${machineId}`}
    check={async (reason) => {
      await order.retryMachine({ machineId, reason, validateOnly: true }, at(shardId));
      return "The shard forgets its waits for this machine, asks the provider for its state and takes that over. The next cycle may use or release it.";
    }}
    give={async (reason) => {
      await order.retryMachine({ machineId, reason }, at(shardId));
      return "Done. What the provider says is shown here.";
    }}
  />
);

export const BackoffOrder = (s: Scope) => {
  const subject = s.clusterId ? { case: "clusterId" as const, value: s.clusterId } : { case: "provider" as const, value: s.provider ?? "" };
  const waits = (n: number) => (n === 0 ? "No wait is in force." : `${count(n)} ${n === 1 ? "wait" : "waits"} after failures`);
  return (
    <Order
      verb="Try again now"
      about={aboutOf(s)}
      when={s.when}
      check={async (reason) => {
        const n = (await order.clearBackoff({ subject, reason, validateOnly: true }, at(s.shardId))).cleared;
        return n === 0 ? waits(0) : `${waits(n)} would end, and the next cycle tries again.`;
      }}
      give={async (reason) => {
        const n = (await order.clearBackoff({ subject, reason }, at(s.shardId))).cleared;
        return n === 0 ? waits(0) : `${waits(n)} ended.`;
      }}
    />
  );
};

export const AcceptOrder = ({ shardId, clusterId, when }: { shardId: string; clusterId: string; when?: boolean }) => {
  const said = (r: { needsBefore: number; needsAfter: number; surplusMachines: number }) =>
    `Needs: ${count(r.needsBefore)} before, ${count(r.needsAfter)} after. ${count(r.surplusMachines)} machines ${r.surplusMachines === 1 ? "becomes" : "become"} surplus`;
  return (
    <Order
      verb="Accept its report"
      about={`cluster ${clusterId}`}
      when={when}
      check={async (reason) =>
        `${said(await order.acceptRollup({ clusterId, reason, validateOnly: true }, at(shardId)))} and may be taken back. This cannot be undone.`
      }
      give={async (reason) => `${said(await order.acceptRollup({ clusterId, reason }, at(shardId)))}.`}
    />
  );
};
