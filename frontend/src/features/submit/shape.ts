import type { TpuSpec } from "@/api/schema";
import type { Blocks } from "./boxes";
import type { Draft } from "./draft";
import { buildStrategy } from "./request";
import { meshOf } from "./slices";

/** Where a run that takes any platform goes first. */
const PREFERRED = ["tpu", "gpu", "cpu"] as const;

/** Room for a gang, by the scheduler's rules (`base/shapes.py`). */
export interface Shape {
  replicas: number;
  devicesPerReplica: number;
  /** Where it may go, best first; a gang has devices of one platform. */
  platforms: readonly string[];
  /** What keeps the gang on one host; null where it may be split over several. */
  oneHost: string | null;
  /** Whether it may be split over the hosts of one TPU slice, and over no others. */
  oneSlice: boolean;
  /** Whether it asks for checkpoints: hosts that it is split over must share the store of them. */
  saved: boolean;
  /** Why no worker can run it; null for a strategy that runs. */
  unsupported: string | null;
  /** How the devices of each replica lie on a slice; null where that is of no matter. */
  blocks: Blocks | null;
}

/** What the run that the form stands for needs room for. */
export function shapeOf(draft: Draft): Shape {
  const strategy = buildStrategy(draft);
  const computation = (strategy.kind === "tpu" && strategy.computation_shape) || [];
  return {
    replicas: Number(draft.replicas) || 1,
    devicesPerReplica: computation.reduce((product, size) => product * size, 1),
    platforms: platformsOf(draft.platform, strategy.kind),
    oneHost: draft.spread === "one_host" ? "the spread" : strategyOnOneHost(draft),
    oneSlice: strategy.kind === "tpu" && draft.spread !== "one_host",
    saved: draft.checkpointEvery.trim() !== "",
    unsupported: unsupportedStrategy(draft),
    blocks: strategy.kind === "tpu" ? blocksOf(strategy) : null,
  };
}

const ONE_CORE = [1, 1, 1, 1];

function blocksOf(spec: Partial<TpuSpec>): Blocks {
  return {
    shape: spec.computation_shape ?? ONE_CORE,
    stride: spec.computation_stride ?? ONE_CORE,
    mesh: meshOf(spec.topology ?? ""),
  };
}

/** TPUStrategy goes to TPU devices, unless another platform is named. */
function platformsOf(platform: string, strategy: string): readonly string[] {
  if (platform !== "any") return [platform];
  return strategy === "tpu" ? ["tpu"] : PREFERRED;
}

/** Why the server refuses the strategy, by the rules of `contracts/supported.py`. */
export function unsupportedStrategy({ strategy, batch, executor }: Draft): string | null {
  if (strategy === "tpu" && executor !== "auto" && executor !== "spmd")
    return "TPU computes in one SPMD program: leave the executor at Auto.";
  if (strategy === "mirrored" && batch === "per_replica" && executor !== "auto")
    return "Mirrored with a batch per replica chooses its executor itself: leave it at Auto.";
  return null;
}

/** What of the strategy cannot span hosts, whatever the spread. */
export function strategyOnOneHost({ strategy, executor }: Draft): string | null {
  if (strategy === "central_storage") return "the strategy central_storage";
  if (strategy === "one_device") return "the strategy one_device";
  if (executor === "mpmd" || executor === "pmap") return `the executor ${executor.toUpperCase()}`;
  return null;
}
