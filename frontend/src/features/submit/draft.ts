import type { CheckpointSpec, JobSpec, JsonValue, Limits, RecordSpec, Retries } from "@/api/schema";
import { exactText, parseExactly } from "@/lib/wire-numbers";

/** What the Submit page's form holds, as text the way it was typed; kept in this browser until it is submitted. */

export type StrategyKind = "mirrored" | "central_storage" | "tpu" | "one_device";
export type Platform = "any" | "cpu" | "gpu" | "tpu";
export type Spread = "pack" | "balance" | "one_host";
export type DeviceOrder = "auto" | "ring" | "mesh";
export type Executor = "auto" | "spmd" | "pmap" | "mpmd";

/** What the run or version that a draft began as said; what the form does not edit is submitted as it was. */
interface Origin {
  strategy?: JobSpec["strategy"];
  record?: RecordSpec;
  checkpoint?: CheckpointSpec;
  limits?: Limits;
  retries?: Retries;
  /** Values whose texts in the form were not changed stay as they are, whatever a text can say. */
  parameters?: Readonly<Record<string, JsonValue>>;
}

/** A stored program of several files, submitted as it is: that of a job's version. */
export interface KeptProgram {
  bundle: string;
  job: string;
  version: number;
}

export interface Draft {
  filename: string;
  source: string;
  /** In place of the source. */
  keptProgram: KeptProgram | null;
  jobName: string;
  entrypoint: string;
  /** By name; what is absent keeps the program's default. Of a sweep: one value, or several with commas between them. */
  parameters: Readonly<Record<string, string>>;
  /** Every combination of the parameters' values instead of one run. */
  sweep: boolean;
  sweepName: string;
  strategy: StrategyKind;
  batch: "global" | "per_replica";
  executor: Executor;
  parameterDevice: string;
  /** Of TPUStrategy: "2, 2, 1, 1", empty for one core each. */
  computationShape: string;
  computationStride: string;
  /** "v4:2x2x1"; empty for any box. */
  topology: string;
  deviceOrder: DeviceOrder;
  replicas: string;
  platform: Platform;
  spread: Spread;
  waitForDevices: boolean;
  runLimit: string;
  stepLimit: string;
  firstStepLimit: string;
  queueLimit: string;
  grace: string;
  userRetries: string;
  priority: string;
  labels: string;
  /** Id of a checkpoint, or of a run. */
  resumeFrom: string;
  checkpointEvery: string;
  reductionsEvery: string;
  largeReductionsEvery: string;
  origin: Origin;
}

export const EMPTY_DRAFT: Draft = {
  filename: "",
  source: "",
  keptProgram: null,
  jobName: "",
  entrypoint: "",
  parameters: {},
  sweep: false,
  sweepName: "",
  strategy: "mirrored",
  batch: "global",
  executor: "auto",
  parameterDevice: "",
  computationShape: "",
  computationStride: "",
  topology: "",
  deviceOrder: "auto",
  replicas: "8",
  platform: "any",
  spread: "pack",
  waitForDevices: false,
  runLimit: "",
  stepLimit: "",
  firstStepLimit: "",
  queueLimit: "",
  grace: "30",
  userRetries: "0",
  priority: "0",
  labels: "",
  resumeFrom: "",
  checkpointEvery: "",
  reductionsEvery: "10",
  largeReductionsEvery: "",
  origin: {},
};

const STORAGE_KEY = "drumline.submit.draft.1";

export function loadDraft(): Draft {
  try {
    const stored = parseExactly(localStorage.getItem(STORAGE_KEY) ?? "null");
    return typeof stored === "object" && stored !== null ? { ...EMPTY_DRAFT, ...stored } : EMPTY_DRAFT;
  } catch {
    return EMPTY_DRAFT;
  }
}

export function saveDraft(draft: Draft): void {
  try {
    localStorage.setItem(STORAGE_KEY, exactText(draft));
  } catch {
    // Full or switched off: the draft lives as long as the page.
  }
}

/** A job's name from a file's: `My digits.py` becomes `my-digits`. */
export function jobNameOf(filename: string): string {
  const name = filename
    .replace(/\.(py|zip)$/i, "")
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, "-");
  return name.replace(/^[^a-z0-9]+|[^a-z0-9]+$/g, "").slice(0, 63);
}
