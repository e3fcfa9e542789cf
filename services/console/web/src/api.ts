// The RPCs of the console, how a call names its shard, and how old what it brings is.
import { type CallOptions, Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { Console } from "@bigfleet/api/v1alpha1/console";
import { Coordinator } from "@bigfleet/api/v1alpha1/coordinator";
import { CoordinatorAdmin } from "@bigfleet/api/v1alpha1/coordinatoradmin";
import { ShardAdmin } from "@bigfleet/api/v1alpha1/shardadmin";
import { ShardRead } from "@bigfleet/api/v1alpha1/shardread";

const transport = createConnectTransport({ baseUrl: location.origin, useBinaryFormat: true });

export const live = createClient(Console, transport);
export const shard = createClient(ShardRead, transport);
export const order = createClient(ShardAdmin, transport);
export const core = createClient(Coordinator, transport);
export const admin = createClient(CoordinatorAdmin, transport);

const ages = new WeakMap<AbortSignal, number>();
/** The age in milliseconds of the oldest answer that came under this signal: the console shares answers among viewers. */
export const ageOf = (signal: AbortSignal) => ages.get(signal) ?? 0;

export const at = (id: string, signal?: AbortSignal): CallOptions => ({
  headers: { "bigfleet-target": id },
  ...(signal
    ? {
        signal,
        onHeader: (h) => {
          ages.set(signal, Math.max(ageOf(signal), 1000 * Number(h.get("age") ?? 0)));
        },
      }
    : {}),
});

/** What went wrong, as the server said it. */
export function said(e: unknown): string {
  if (e instanceof ConnectError) {
    if (e.code === Code.Unknown && /fetch|network/i.test(e.rawMessage)) return "The console does not answer.";
    return e.rawMessage;
  }
  return e instanceof Error ? e.message : String(e);
}
