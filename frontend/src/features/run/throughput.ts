import type { Run } from "@/api/schema";
import { formatNumber } from "@/lib/format";

export type Throughput = NonNullable<Run["progress"]["throughput"]>;

/** Why a share of the chip's peak is not known: no number is invented. */
const UNKNOWN: Record<string, string> = {
  chip: "not known for this chip",
  loops: "not known: the step multiplies in a loop, which XLA counts once",
  kernels: "not known: kernels of the program's own are not counted",
  executor: "not known: the step is no single program",
  compiler: "not known: the compiler does not say",
  examples: "not known: the steps take no batch of a dataset",
};

/** `41.2 %`, or why there is none. */
export function shareText(percent: number | null | undefined, unknown: string | null | undefined): string {
  if (typeof percent === "number") return formatPercent(percent);
  return UNKNOWN[unknown ?? ""] ?? "not known";
}

/** Why there are no times of a traced step. */
const UNMEASURED: Record<string, string> = {
  off: "not measured: no step is traced",
  platform: "not measured: the platform tells no operations of devices",
  long: "not measured: the step takes longer than is traced",
  unreadable: "not measured: the trace could not be read",
  pending: "not measured yet: no step was traced so far",
  busy: "not measured: the program traces itself with jax.profiler",
};

export function unmeasuredText(reason: string | null | undefined): string {
  return UNMEASURED[reason ?? "off"] ?? "not measured";
}

/** Three digits: `0.0421 %`, `4.31 %`, `41.2 %`. */
function formatPercent(percent: number): string {
  return `${formatNumber(percent, 3)} %`;
}

const LEAST_TOLD_MS = 0.0005;

/** Why a sampled step may have none, although its replicas exchange values; empty where it has. */
export function noCollectives(ms: number): string {
  return ms < LEAST_TOLD_MS
    ? "no operation of it is one; by executor mpmd replicas exchange through the host"
    : "";
}

/** Of a step, in milliseconds as it is in charts; `none` where it is too little to be told. */
export function formatStepTime(ms: number): string {
  return ms < LEAST_TOLD_MS ? "none" : `${formatNumber(ms, 3)} ms`;
}

const PREFIXES = ["", "k", "M", "G", "T", "P", "E"];

/** Operations a second, with a decimal prefix: `1.23 Tflop/s`. */
export function formatFlops(perSecond: number): string {
  const power = Math.min(PREFIXES.length - 1, Math.max(0, Math.floor(Math.log10(perSecond || 1) / 3)));
  return `${formatNumber(perSecond / 1000 ** power, 3)} ${PREFIXES[power]}flop/s`;
}

/** Whether the program told what its model needs for an example. */
export function hasModel({ mfu_percent: mfu, mfu_unknown: unknown }: Throughput): boolean {
  return typeof mfu === "number" || Boolean(unknown);
}
