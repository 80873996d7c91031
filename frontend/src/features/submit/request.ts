import type {
  CentralStorageSpec,
  CheckpointSpec,
  JsonValue,
  Limits,
  MirroredSpec,
  OneDeviceSpec,
  ProgramEntrypoint,
  ProgramParameter,
  RecordSpec,
  Retries,
  TpuSpec,
} from "@/api/schema";
import { exactText, parseExactly } from "@/lib/wire-numbers";
import { type Draft, EMPTY_DRAFT, jobNameOf } from "./draft";
import { parseLabels } from "./labels";

/** A RunSubmit in which whatever has a default may be left out; the generated type demands the defaults too. */
export interface Submission {
  job: {
    name: string;
    program: { bundle: string; entrypoint: string };
    strategy: Strategy;
    record?: Partial<RecordSpec>;
    checkpoint: Partial<CheckpointSpec>;
  };
  parameters: Record<string, JsonValue>;
  resources: { replicas: number; platform: Draft["platform"]; spread: Draft["spread"] };
  limits: Limits;
  retries: Partial<Retries>;
  priority: number;
  labels: Record<string, string>;
  wait_for_devices: boolean;
  /** The plan that the run is submitted from. */
  plan?: string | null;
  /** Queue it although that plan says that it does not fit. */
  anyway?: boolean;
  resume_from: string | null;
}

type Strategy = Says<MirroredSpec> | Says<CentralStorageSpec> | Says<TpuSpec> | OneDeviceSpec;
type Says<Spec extends { kind: string }> = Partial<Spec> & Pick<Spec, "kind">;

export type FieldErrors = Readonly<Record<string, string>>;

/** Either the request that the form stands for, or what is wrong with which field. */
type Built = { request: Submission; errors: null } | { request: null; errors: FieldErrors };

/** Reads the form: texts become numbers and values; the server still has the last word on each. */
export function buildRequest(draft: Draft, bundle: string, entrypoint: ProgramEntrypoint): Built {
  const { origin } = draft;
  const errors: Record<string, string> = { ...needsFlaws(draft) };
  const number = (field: string, text: string, least: number): number => {
    const flaw = numberFlaw(text, least);
    if (flaw === null) return Number(text);
    errors[field] = flaw;
    return least;
  };
  const limit = (field: string, text: string) => (text.trim() === "" ? null : number(field, text, 1));
  const duration = (field: string, text: string) => {
    const value = text.trim() === "" ? null : number(field, text, 0);
    if (value === 0) errors[field] = "must be a number over 0";
    return value;
  };
  const whole = (field: string, text: string, least: number): number => {
    const value = number(field, text, least);
    if (!Number.isInteger(value)) errors[field] = NOT_WHOLE;
    return value;
  };
  const request: Submission = {
    job: {
      name: draft.jobName.trim() || draft.keptProgram?.job || jobNameOf(draft.filename),
      program: { bundle, entrypoint: entrypoint.entrypoint },
      strategy: buildStrategy(draft),
      ...buildRecord(draft, whole),
      checkpoint: {
        ...origin.checkpoint,
        every_steps: draft.checkpointEvery.trim()
          ? whole("job.checkpoint.every_steps", draft.checkpointEvery, 1)
          : null,
      },
    },
    parameters: buildParameters(draft, entrypoint, errors),
    resources: {
      replicas: whole("resources.replicas", draft.replicas, 1),
      platform: draft.platform,
      spread: draft.spread,
    },
    limits: {
      ...origin.limits,
      run_s: duration("limits.run_s", draft.runLimit),
      step_s: limit("limits.step_s", draft.stepLimit),
      first_step_s: limit("limits.first_step_s", draft.firstStepLimit),
      queue_s: duration("limits.queue_s", draft.queueLimit),
      grace_s: number("limits.grace_s", draft.grace, 0),
    },
    retries: { ...origin.retries, user: whole("retries.user", draft.userRetries, 0) },
    priority: whole("priority", draft.priority, -1000),
    labels: buildLabels(draft.labels, errors),
    wait_for_devices: draft.waitForDevices,
    resume_from: draft.resumeFrom.trim() || null,
  };
  return Object.keys(errors).length > 0 ? { request: null, errors } : { request, errors: null };
}

/** What is wrong with the fields that say how many devices the run needs: while one is, nothing is known of room for it. */
export function needsFlaws(draft: Draft): FieldErrors {
  const errors: Record<string, string> = {};
  const replicas =
    numberFlaw(draft.replicas, 1) ?? (Number.isInteger(Number(draft.replicas)) ? null : NOT_WHOLE);
  if (replicas) errors["resources.replicas"] = replicas;
  if (draft.strategy !== "tpu") return errors;
  const shape = extentsFlaw(draft.computationShape);
  const stride = extentsFlaw(draft.computationStride);
  if (shape) errors["job.strategy.computation_shape"] = shape;
  if (stride) errors["job.strategy.computation_stride"] = stride;
  return errors;
}

const NOT_WHOLE = "must be a whole number";

function numberFlaw(text: string, least: number): string | null {
  const value = Number(text);
  const isNumber = text.trim() !== "" && Number.isFinite(value) && value >= least;
  return isNumber ? null : `must be a number of at least ${least}`;
}

/** Nothing where the form says what is so anyway. */
function buildRecord(
  { origin: { record }, reductionsEvery, largeReductionsEvery }: Draft,
  whole: (field: string, text: string, least: number) => number,
): { record?: Partial<RecordSpec> } {
  const every = whole("job.record.reductions_every", reductionsEvery, 1);
  const large = largeReductionsEvery.trim()
    ? whole("job.record.large_reductions_every", largeReductionsEvery, 1)
    : null;
  if (!record && every === Number(EMPTY_DRAFT.reductionsEvery) && large === null) return {};
  const isLargeTold = large !== null || record?.large_reductions_every != null;
  return {
    record: { ...record, reductions_every: every, ...(isLargeTold && { large_reductions_every: large }) },
  };
}

/** A typed text as the value that the parameter's type asks for; throws with what was expected. */
export function parseParameter(parameter: Pick<ProgramParameter, "type">, text: string): JsonValue {
  const number = Number(text);
  switch (parameter.type) {
    case "int":
      if (text.trim() === "" || !Number.isInteger(number)) throw new Error("must be a whole number");
      return !Number.isSafeInteger(number) && /^\s*-?\d+\s*$/.test(text) ? BigInt(text) : number;
    case "float":
      if (text.trim() === "" || !Number.isFinite(number)) throw new Error("must be a number");
      return number;
    case "bool":
      return text === "true";
    case "list":
      return parseList(text);
    case "json":
      try {
        return parseExactly(text);
      } catch {
        throw new Error("must be JSON");
      }
    default:
      return text;
  }
}

/** A parameter's value as the form shows it. */
export function textOf(value: JsonValue): string {
  return typeof value === "string" ? value : exactText(value);
}

function parseList(text: string): JsonValue[] {
  try {
    const value = parseExactly(text);
    if (Array.isArray(value)) return value as JsonValue[];
  } catch {
    // said below, as for JSON that is no list
  }
  throw new Error("must be a JSON list, such as [64, 32]");
}

/** The strategy that the form stands for, with what the origin said of it beyond the form. */
export function buildStrategy({ strategy: kind, origin, ...draft }: Draft): Strategy {
  const { batch, executor } = draft;
  switch (kind) {
    case "mirrored":
      return { ...(origin.strategy?.kind === kind && origin.strategy), kind, batch, executor };
    case "central_storage":
      return { kind, executor, parameter_device: draft.parameterDevice.trim() || null };
    case "tpu":
      return {
        kind,
        topology: draft.topology.trim() || null,
        computation_shape: extentsIn(draft.computationShape),
        computation_stride: extentsIn(draft.computationStride),
        device_order: draft.deviceOrder,
        executor,
      };
    case "one_device":
      return { kind };
  }
}

/** "2, 2, 1, 1" or "2x2x1x1" as numbers; what is none is 0, which `extentsFlaw` names. */
function extentsIn(text: string): number[] | null {
  const parts = text.trim() === "" ? [] : text.trim().split(/\s*[,x ]\s*/);
  return parts.length === 0 ? null : parts.map((part) => (/^\d{1,4}$/.test(part) ? Number(part) : 0));
}

/** What is wrong with a shape or stride as it was typed; null for four numbers, and for none. */
function extentsFlaw(text: string): string | null {
  const extents = extentsIn(text);
  if (extents === null || (extents.length === 4 && extents.every((size) => size >= 1))) return null;
  return "must be four numbers of at least 1: x, y, z, core";
}

function buildParameters(draft: Draft, entrypoint: ProgramEntrypoint, errors: Record<string, string>) {
  const parameters: Record<string, JsonValue> = {};
  for (const parameter of entrypoint.parameters) {
    const text = draft.parameters[parameter.name];
    const field = `parameters.${parameter.name}`;
    if (text === undefined) {
      if (parameter.required) errors[field] = "is required";
      continue;
    }
    const before = draft.origin.parameters?.[parameter.name];
    if (before !== undefined && text === textOf(before)) {
      parameters[parameter.name] = before;
      continue;
    }
    try {
      parameters[parameter.name] = parseParameter(parameter, text);
    } catch (error) {
      errors[field] = (error as Error).message;
    }
  }
  return parameters;
}

function buildLabels(text: string, errors: Record<string, string>): Record<string, string> {
  try {
    return parseLabels(text);
  } catch (error) {
    errors.labels = (error as Error).message;
    return {};
  }
}
