import type { JobVersion, Run } from "@/api/schema";
import { type Draft, EMPTY_DRAFT } from "./draft";
import { formatLabels } from "./labels";
import { textOf } from "./request";

/** The only file of a program, or a program of several as it is stored. */
type ClonedProgram = Pick<Draft, "filename" | "source"> | Pick<Draft, "keptProgram">;

/** A draft that is the run once more. */
export function draftOfRun(run: Run, program: ClonedProgram): Draft {
  const { parameters, resources, limits, retries } = run;
  const draft = draftOfVersion(run.spec, program);
  return {
    ...draft,
    parameters: Object.fromEntries(Object.entries(parameters).map(([name, value]) => [name, textOf(value)])),
    replicas: String(resources.replicas),
    platform: resources.platform,
    spread: resources.spread,
    waitForDevices: run.wait_for_devices,
    runLimit: numberText(limits.run_s),
    stepLimit: numberText(limits.step_s),
    firstStepLimit: numberText(limits.first_step_s),
    queueLimit: numberText(limits.queue_s),
    grace: String(limits.grace_s),
    userRetries: String(retries.user),
    priority: String(run.priority),
    resumeFrom: run.resume_from ?? "",
    labels: formatLabels(run.labels),
    origin: { ...draft.origin, parameters, limits, retries },
  };
}

/** What a version of a job says itself; the rest is as the form begins. */
export function draftOfVersion(version: JobVersion, program: ClonedProgram): Draft {
  const { strategy, record, checkpoint } = version;
  return {
    ...EMPTY_DRAFT,
    ...program,
    jobName: version.job,
    entrypoint: version.program.entrypoint,
    strategy: strategy.kind,
    ...(strategy.kind === "mirrored" && { batch: strategy.batch }),
    ...(strategy.kind !== "one_device" ? { executor: strategy.executor } : { replicas: "1" }),
    ...(strategy.kind === "central_storage" && { parameterDevice: strategy.parameter_device ?? "" }),
    ...(strategy.kind === "tpu" && {
      topology: strategy.topology ?? "",
      computationShape: strategy.computation_shape?.join(", ") ?? "",
      computationStride: strategy.computation_stride?.join(", ") ?? "",
      deviceOrder: strategy.device_order,
    }),
    checkpointEvery: numberText(checkpoint.every_steps),
    reductionsEvery: String(record.reductions_every),
    largeReductionsEvery: numberText(record.large_reductions_every),
    origin: { strategy, record, checkpoint },
  };
}

function numberText(value: number | null | undefined): string {
  return value == null ? "" : String(value);
}
