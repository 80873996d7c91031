import type { RunEvent } from "@/api/schema";
import { count } from "@/lib/format";

/** How many records of each kind never arrived: dropped under load, or lost with the host. */
export type Dropped = ReadonlyMap<string, number>;

export function droppedOf(events: readonly Pick<RunEvent, "kind" | "body">[]): Dropped {
  const dropped = new Map<string, number>();
  for (const { kind, body } of events) {
    if (kind !== "gap" || typeof body.what !== "string") continue;
    const records = typeof body.count === "number" ? body.count : 1;
    dropped.set(body.what, (dropped.get(body.what) ?? 0) + records);
  }
  return dropped;
}

const RECORDS: Record<string, [one: string, many: string]> = {
  log: ["piece of output", "pieces of output"],
  metrics: ["logged value", "logged values"],
  reduction: ["reduction", "reductions"],
};

/** What a view must own up to: records of its own kind, and those that were lost whatever they were. */
export function gapSentence(dropped: Dropped, what: "log" | "metrics" | "reduction"): string | null {
  const own = dropped.get(what) ?? 0;
  const lost = dropped.get("spool") ?? 0;
  const parts = [
    own > 0 && `${count(own, ...recordsOf(what))} ${own === 1 ? "was" : "were"} dropped under load`,
    lost > 0 && `${count(lost, "record")} of any kind ${lost === 1 ? "was" : "were"} lost with the worker`,
  ].filter(Boolean);
  return parts.length > 0 ? `${parts.join("; ")}.` : null;
}

function recordsOf(what: string): [string, string] {
  return RECORDS[what] ?? ["record", "records"];
}
