/** The geometry of a traced step, and what it says in words. */
import type { Profile, ProfileLanes } from "@/api/schema";
import { formatBytes, formatInteger, formatNumber } from "@/lib/format";
import type { DrawnBlock } from "./lane";
import type { Range } from "./model";

export type Kind = "computing" | "collective" | "idle";

export const LABELS: Record<Kind, string> = {
  computing: "computing",
  collective: "in collectives",
  idle: "idle",
};
export const FILLS: Record<Kind, string> = {
  computing: "var(--replica-2)",
  collective: "var(--replica-6)",
  idle: "var(--surface)",
};

/** What a device does for a while, in milliseconds since the first operation of any. */
export interface Operation {
  name: string;
  kind: Kind;
  begin: number;
  end: number;
}

const NS = 1e6;
/** What a tick's words take of the width. */
const LAST_TICK = 0.07;

/** Operations of one lane by their begin; one within another comes after it. */
export function operationsOf(profile: ProfileLanes, device: string): Operation[] {
  const lane = profile.lanes.find((each) => each.device === device);
  return (
    lane?.operations.map((number, place) => {
      const { name, is_collective } = profile.operations[number] ?? { name: "?", is_collective: false };
      const begin = (lane.begins_ns[place] ?? 0) / NS;
      const kind = is_collective ? ("collective" as const) : ("computing" as const);
      return { name, kind, begin, end: begin + (lane.durations_ns[place] ?? 0) / NS };
    }) ?? []
  );
}

/** What is seen of them; what lies within another one is drawn over it. */
export function blocksOf(operations: readonly Operation[], { from, to }: Range): DrawnBlock[] {
  return operations.flatMap(({ kind, begin, end }, place) =>
    end <= from || begin >= to
      ? []
      : [
          {
            key: String(place),
            x: (Math.max(begin, from) - from) / (to - from),
            width: (Math.min(end, to) - Math.max(begin, from)) / (to - from),
            y: 0,
            height: 1,
            fill: FILLS[kind],
          },
        ],
  );
}

/** The innermost operation at a moment. */
export function operationAt(operations: readonly Operation[], at: number): Operation | undefined {
  return operations.findLast(({ begin, end }) => begin <= at && at < end);
}

/** `psum.7, in collectives, 0.321 ms from 0.09 ms on` */
export function sentenceOf(operation: Operation | undefined): string {
  if (!operation) return "idle";
  const { name, kind, begin, end } = operation;
  return `${name}, ${LABELS[kind]}, ${formatMs(end - begin)} from ${formatMs(begin)} on`;
}

export function formatMs(ms: number): string {
  return `${formatNumber(ms, 3)} ms`;
}

/** Round moments of the range, at most `most`, none so near its end that its words would be cut. */
export function ticksOf({ from, to }: Range, most: number): number[] {
  const least = (to - from) / most;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= least) ?? 10);
  const first = Math.ceil(from / step - 1e-9);
  return Array.from({ length: most }, (_, place) => (first + place) * step).filter(
    (at) => at < to - LAST_TICK * (to - from),
  );
}

/** What names a traced step in a list: `Step 49`, where several processes were traced with the rank. */
export function nameOf({ step, rank, steps }: Profile, isGang: boolean): string {
  const which =
    steps > 1 ? `${formatInteger(steps)} steps to ${formatInteger(step)}` : `Step ${formatInteger(step)}`;
  return isGang ? `${which}, rank ${rank}` : which;
}

const LEFT_OUT: Record<string, string> = {
  large: "larger than 512 KiB",
  full: "the process traced 16 MiB before",
  unreadable: "jax.profiler wrote none",
};

/** Why the files of a trace can't be downloaded. */
export function leftOutText({ file_left_out: reason, file_bytes: bytes }: Profile): string {
  const size = bytes > 0 ? `Its files (${formatBytes(bytes)})` : "Its files";
  return `${size} are not kept: ${LEFT_OUT[reason ?? ""] ?? "not said why"}.`;
}
