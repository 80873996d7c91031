import type { Arrivals, ArrivalTimes } from "@/api/schema";
import { colorOf } from "@/components/ledger/names";
import { formatNumber } from "@/lib/format";
import { executorsInWords } from "./executor";

interface Part {
  name: "input" | "own code" | "dispatch" | "wait" | "devices";
  ms: number;
  /** What is in the ledger too has its colour there. */
  color: string;
}

const COLORS: Record<Part["name"], string> = {
  input: colorOf("input"),
  "own code": colorOf("own_code"),
  dispatch: colorOf("launch"),
  wait: colorOf("queue"),
  devices: colorOf("steps"),
};

export const PARTS = Object.keys(COLORS) as Part["name"][];

export function colorOfPart(name: Part["name"]): string {
  return COLORS[name];
}

/** What a step of a member is made of, in the order in which it happens. */
export function partsOf(times: ArrivalTimes): Part[] {
  const ms: Record<Part["name"], number> = {
    input: times.input_ms,
    "own code": times.own_code_ms,
    dispatch: times.dispatch_ms,
    wait: times.wait_ms,
    devices: times.devices_ms,
  };
  return PARTS.map((name) => ({ name, ms: ms[name], color: COLORS[name] }));
}

export function formatMs(ms: number): string {
  return `${formatNumber(ms, 3)} ms`;
}

/** Why a member has no times, on its tile. */
export function unmeasuredText({ unmeasured, executor }: Arrivals): string {
  if (unmeasured !== "executor") return "nothing measured yet";
  const names = executorsInWords(executor).join(", ");
  return `not measured for this executor${names ? `: ${names}` : ""}`;
}
