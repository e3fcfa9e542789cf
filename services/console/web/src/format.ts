// Numbers, times and names as people read them.
import { ActionKind, DecisionRecordSchema, RecordType } from "@bigfleet/api/v1alpha1/decision";
import { CapacityType, MachineState } from "@bigfleet/api/v1alpha1/provider";
import { NeedState, type NeedView } from "@bigfleet/api/v1alpha1/shardread";

export type Tone = "met" | "way" | "held" | "short" | "idle" | "money" | "dim";

const whole = new Intl.NumberFormat("en-US");
export const count = (n: number | bigint) => whole.format(n);
/** A number of things: `1 machine`, `2 machines`. */
export const many = (n: number | bigint, thing: string) => `${count(n)} ${thing}${Number(n) === 1 ? "" : "s"}`;

export function dollars(n: number): string {
  if (n === 0) return "$0";
  const places = Math.abs(n) >= 1000 ? 0 : Math.abs(n) >= 1 ? 2 : 3;
  return `$${n.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places })}`;
}

export const ms = (nanos: bigint) => Number(nanos / 1_000_000n);

export function span(millis: number): string {
  const s = Math.max(0, millis) / 1000;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${(s / 3600).toFixed(1)} h`;
  return `${Math.round(s / 86400)} d`;
}
export const since = (nanos: bigint, now = Date.now()) => (nanos ? span(now - ms(nanos)) : "–");

const two = (n: number) => String(n).padStart(2, "0");
export function clock(nanos: bigint): string {
  if (!nanos) return "–";
  const d = new Date(ms(nanos));
  const t = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  return Date.now() - d.getTime() > 20 * 3600_000 ? `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${t}` : t;
}
export const iso = (millis: number) => new Date(millis).toISOString();

const lower = (s: string) => s.toLowerCase().replaceAll("_", " ");
export const stateName = (s: MachineState) => lower(MachineState[s] ?? `state ${s}`);
/** The number of a state's full name, as filters take it. */
export const stateNumber = (name: string) => String(MachineState[name.replace("MACHINE_STATE_", "") as keyof typeof MachineState] ?? "");
const inUse = ["configured", "configuring", "creating", "idle", "draining", "deleting", "failed", "speculative"];
/** Machines by state, always in the same order. */
export const byState = (states: { [name: string]: number | bigint }): [string, number][] =>
  Object.entries(states)
    .map(([k, n]): [string, number] => [k, Number(n)])
    .sort((a, b) => inUse.indexOf(plainName(a[0])) - inUse.indexOf(plainName(b[0])));
export const capacityName = (c: CapacityType) => lower(CapacityType[c] ?? `type ${c}`).replace("unspecified", "unknown");
export const actionName = (k: ActionKind) => lower(ActionKind[k] ?? "action").replace("unspecified", "");
export const recordName = (t: RecordType) =>
  t === RecordType.UNEXPECTED_EDGE ? "changed without an action of BigFleet" : lower(RecordType[t] ?? "record");
export const plainName = (enumName: string) =>
  lower(enumName.replace(/^(MACHINE_STATE|ACTION_KIND|UNMET_REASON|SHARD_STATE|REBALANCE_MODE)_/, "")).replace("unspecified", "other");

export const stateTone: Record<string, Tone> = {
  configured: "met",
  creating: "way",
  configuring: "way",
  draining: "held",
  deleting: "held",
  idle: "idle",
  failed: "short",
  speculative: "dim",
};
export const toneOf = (s: MachineState): Tone => stateTone[stateName(s)] ?? "dim";

/** How a need stands: a shape, a word and a colour. */
export function standing(n: NeedView): { shape: string; word: string; tone: Tone } {
  if (n.satisfied && n.status !== NeedState.ON_THE_WAY) return { shape: "●", word: "met", tone: "met" };
  if (n.status === NeedState.ON_THE_WAY || n.onTheWayCount > 0) return { shape: "◐", word: "on the way", tone: "way" };
  if (n.hold || n.acquisitionParked) return { shape: "◇", word: "held back", tone: "held" };
  return { shape: "▲", word: "short", tone: "short" };
}

/** Requested resources in one line, the usual ones first. */
export function amounts(r: { [k: string]: string } | undefined): string {
  const first = ["cpu", "memory", "nvidia.com/gpu"];
  const keys = Object.keys(r ?? {}).sort((a, b) => ((first.indexOf(a) + 9) % 9) - ((first.indexOf(b) + 9) % 9) || a.localeCompare(b));
  return keys
    .filter((k) => k !== "pods")
    .map((k) => `${quantity(r?.[k] ?? "", k)} ${k}`)
    .join(", ");
}
const units: Record<string, number> = {
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  "": 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};
export function value(q: string | undefined): number {
  const m = /^([+-]?[\d.]+(?:[eE][+-]?\d+)?)([numkMGTPE]i?|)$/.exec(q ?? "");
  return m ? Number(m[1]) * (units[m[2] ?? ""] ?? 1) : 0;
}
/** Amounts of two places, added up. */
export function summed(a: { [k: string]: string }, b: { [k: string]: string }): { [k: string]: string } {
  const out = { ...a };
  for (const [k, v] of Object.entries(b)) out[k] = String(value(out[k]) + value(v));
  return out;
}
function quantity(q: string, key: string): string {
  const v = value(q);
  if (!v) return q;
  if (key === "memory" || key.includes("storage")) {
    for (const u of ["Ti", "Gi", "Mi", "Ki"]) if (v >= (units[u] ?? 1)) return `${Number((v / (units[u] ?? 1)).toPrecision(3))} ${u}`;
  }
  return whole.format(Number(v.toPrecision(4)));
}

/** A requirement, as `zone in a, b`. */
export const requirement = (r: { key: string; operator: number; values: string[] }) =>
  `${r.key} ${["?", "in", "not in", "exists", "does not exist", "same"][r.operator] ?? ""} ${r.values.join(", ")}`.trim().slice(0, 400);

/** The name of a gang; rows of Pods of one size have a group, too, which says nothing to a person (OP-5.22). */
export const gangName = (group: string | undefined) => (!group || group.startsWith("s1-") ? "" : group.replaceAll("\u0000", " · "));

/** A need by its name, as the command line takes it. */
export const needName = (n: NeedView) => `${n.clusterId}/${n.need?.rowId || n.profileFingerprint}`;
/** The same as people read it. */
export const shortNeed = (n: NeedView) => `${n.clusterId}/${shortRow(n)}`;
export const shortRow = (n: NeedView) => (n.need?.rowId || n.profileFingerprint).slice(0, 12);
export const recordSchema = DecisionRecordSchema;
/** A word for the shell. */
export const quote = (s: string) => (/^[\w@%+=:,./-]+$/.test(s) ? s : `'${s.replaceAll("'", `'\\''`)}'`);
