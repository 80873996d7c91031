import type { JsonValue } from "@/api/schema";
import type { Draft } from "./draft";
import { buildStrategy, textOf } from "./request";

/** What the contracts take where nothing is said; null where no name is listed. */
const DEFAULTS = {
  strategy: {
    batch: "global",
    collectives: "strategy",
    executor: "auto",
    cross_device_ops: "auto",
    device_order: "auto",
  },
  record: { reductions_every: 10, on_divergence: "warn" },
  checkpoint: { keep: 2 },
  limits: { grace_s: 30 },
  retries: { user: 0, infrastructure: 3 },
} as const satisfies Record<string, Readonly<Record<string, JsonValue>>>;

type Part = keyof typeof DEFAULTS;

const NOT_IN_FORM: ReadonlySet<string> = new Set([
  "strategy.collectives",
  "strategy.cross_device_ops",
  "record.divergence_every",
  "record.on_divergence",
  "record.profile_every",
  "checkpoint.keep",
  "checkpoint.keep_every_steps",
  "limits.rendezvous_s",
  "retries.infrastructure",
]);

/** The fields of a part of a submission that differ from their defaults. */
export function differences(part: Part, fields: object = {}): [string, JsonValue][] {
  const defaults: Readonly<Record<string, JsonValue>> = DEFAULTS[part];
  return Object.entries(fields).filter(([name, value]) => value != null && value !== defaults[name]);
}

/** The same of several parts, by dotted name: `checkpoint.keep`. */
export function differencesIn(parts: Partial<Record<Part, object | undefined>>): [string, JsonValue][] {
  return (Object.keys(parts) as Part[]).flatMap((part) =>
    differences(part, parts[part]).map(([name, value]): [string, JsonValue] => [`${part}.${name}`, value]),
  );
}

/** What a draft keeps of the run or version that it began as and shows in no field: `checkpoint.keep=5`. */
export function keptOf(draft: Draft): string[] {
  const { record, checkpoint, limits, retries } = draft.origin;
  return differencesIn({ strategy: buildStrategy(draft), record, checkpoint, limits, retries })
    .filter(([name]) => NOT_IN_FORM.has(name))
    .map(([name, value]) => `${name}=${textOf(value)}`);
}
