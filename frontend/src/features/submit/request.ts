import type { JsonValue, ProgramEntrypoint, ProgramParameter } from "@/api/schema";
import { type Draft, jobNameOf } from "./draft";

/** A RunSubmit in which whatever has a default may be left out; the generated type demands the defaults too. */
export interface Submission {
  job: {
    name: string;
    program: { bundle: string; entrypoint: string };
    strategy: Strategy;
    checkpoint: { every_steps: number | null };
  };
  parameters: Record<string, JsonValue>;
  resources: { replicas: number; platform: Draft["platform"] };
  limits: {
    run_s: number | null;
    step_s: number | null;
    first_step_s: number | null;
    queue_s: number | null;
    grace_s: number;
  };
  retries: { user: number };
  priority: number;
  labels: Record<string, string>;
  wait_for_devices: boolean;
  /** The plan that the run is submitted from. */
  plan?: string | null;
  resume_from: string | null;
}

type Strategy =
  | { kind: "mirrored"; batch: Draft["batch"]; executor: Draft["executor"] }
  | { kind: "central_storage"; executor: Draft["executor"]; parameter_device?: string }
  | { kind: "tpu"; executor: Draft["executor"] }
  | { kind: "one_device" };

export type FieldErrors = Readonly<Record<string, string>>;

/** Either the request that the form stands for, or what is wrong with which field. */
export type Built = { request: Submission; errors: null } | { request: null; errors: FieldErrors };

/** Reads the form: texts become numbers and values; the server still has the last word on each. */
export function buildRequest(draft: Draft, bundle: string, entrypoint: ProgramEntrypoint): Built {
  const errors: Record<string, string> = {};
  const number = (field: string, text: string, least: number): number => {
    const value = Number(text);
    if (text.trim() !== "" && Number.isFinite(value) && value >= least) return value;
    errors[field] = `must be a number of at least ${least}`;
    return least;
  };
  const limit = (field: string, text: string) => (text.trim() === "" ? null : number(field, text, 1));
  const whole = (field: string, text: string, least: number): number => {
    const value = number(field, text, least);
    if (!Number.isInteger(value)) errors[field] = "must be a whole number";
    return value;
  };
  const request: Submission = {
    job: {
      name: draft.jobName.trim() || jobNameOf(draft.filename),
      program: { bundle, entrypoint: entrypoint.entrypoint },
      strategy: buildStrategy(draft),
      checkpoint: {
        every_steps: draft.checkpointEvery.trim()
          ? whole("job.checkpoint.every_steps", draft.checkpointEvery, 1)
          : null,
      },
    },
    parameters: buildParameters(draft, entrypoint, errors),
    resources: { replicas: whole("resources.replicas", draft.replicas, 1), platform: draft.platform },
    limits: {
      run_s: limit("limits.run_s", draft.runLimit),
      step_s: limit("limits.step_s", draft.stepLimit),
      first_step_s: limit("limits.first_step_s", draft.firstStepLimit),
      queue_s: limit("limits.queue_s", draft.queueLimit),
      grace_s: number("limits.grace_s", draft.grace, 0),
    },
    retries: { user: whole("retries.user", draft.userRetries, 0) },
    priority: whole("priority", draft.priority, -1000),
    labels: buildLabels(draft.labels, errors),
    wait_for_devices: draft.waitForDevices,
    resume_from: draft.resumeFrom.trim() || null,
  };
  return Object.keys(errors).length > 0 ? { request: null, errors } : { request, errors: null };
}

/** A typed text as the value that the parameter's type asks for; throws with what was expected. */
export function parseParameter(parameter: Pick<ProgramParameter, "type">, text: string): JsonValue {
  const number = Number(text);
  switch (parameter.type) {
    case "int":
      if (text.trim() === "" || !Number.isInteger(number)) throw new Error("must be a whole number");
      return number;
    case "float":
      if (text.trim() === "" || !Number.isFinite(number)) throw new Error("must be a number");
      return number;
    case "bool":
      return text === "true";
    case "list":
      return parseList(text);
    case "json":
      try {
        return JSON.parse(text) as JsonValue;
      } catch {
        throw new Error("must be JSON");
      }
    default:
      return text;
  }
}

function parseList(text: string): JsonValue[] {
  try {
    const value: unknown = JSON.parse(text);
    if (Array.isArray(value)) return value as JsonValue[];
  } catch {
    // said below, as for JSON that is no list
  }
  throw new Error("must be a JSON list, such as [64, 32]");
}

function buildStrategy(draft: Draft): Strategy {
  switch (draft.strategy) {
    case "mirrored":
      return { kind: "mirrored", batch: draft.batch, executor: draft.executor };
    case "central_storage": {
      const device = draft.parameterDevice.trim();
      return {
        kind: "central_storage",
        executor: draft.executor,
        ...(device && { parameter_device: device }),
      };
    }
    case "tpu":
      return { kind: "tpu", executor: draft.executor };
    case "one_device":
      return { kind: "one_device" };
  }
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
    try {
      parameters[parameter.name] = parseParameter(parameter, text);
    } catch (error) {
      errors[field] = (error as Error).message;
    }
  }
  return parameters;
}

function buildLabels(text: string, errors: Record<string, string>): Record<string, string> {
  const pairs = text.split(/[\s,]+/).filter(Boolean);
  const bad = pairs.find((pair) => !/^[^=]+=.+$/.test(pair));
  if (bad) errors.labels = `${bad} is not of the form name=value`;
  return Object.fromEntries(
    pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]),
  );
}
