// @vitest-environment happy-dom
// A draft is kept in the browser.

import { describe, expect, it } from "vitest";
import type { JobSpec, JobVersion, ProgramEntrypoint, Run } from "@/api/schema";
import { draftOfRun, draftOfVersion } from "./clone";
import { loadDraft, saveDraft } from "./draft";
import { keptOf } from "./kept";
import { buildRequest } from "./request";
import { programPart } from "./use-draft";
import { programOf } from "./use-program";

const PROGRAM = { filename: "digits.py", source: "def main(run): ..." };
const ENTRYPOINT: ProgramEntrypoint = {
  entrypoint: "digits:main",
  summary: "",
  parameters: [
    { name: "epochs", type: "int", required: false, default: 20 },
    { name: "patience", type: "int", required: false, default: 3 },
    { name: "note", type: "str", required: false, default: "" },
    { name: "shape", type: "json", required: false, default: null },
    { name: "layers", type: "list", items: "int", required: false, default: [64] },
  ],
};
const MIRRORED: JobSpec["strategy"] = {
  kind: "mirrored",
  batch: "per_replica",
  cross_device_ops: "hierarchical",
  executor: "spmd",
  collectives: "jax",
};
const TPU: JobSpec["strategy"] = {
  kind: "tpu",
  topology: "v4-2x2x4",
  computation_shape: [1, 1, 1, 2],
  computation_stride: [1, 1, 1, 1],
  device_order: "ring",
  executor: "pmap",
};
const STRATEGIES: JobSpec["strategy"][] = [
  MIRRORED,
  TPU,
  { kind: "central_storage", parameter_device: "cpu:0", executor: "mpmd" },
  { kind: "central_storage", parameter_device: null, executor: "auto" },
  { kind: "one_device" },
];

function versionOf(strategy: JobSpec["strategy"]): JobVersion {
  return {
    id: "ver_1",
    job: "night-digits",
    number: 3,
    content_hash: "sha256:11",
    program: { bundle: "sha256:00", entrypoint: "digits:main" },
    strategy,
    record: { reductions_every: 5, on_divergence: "warn" },
    checkpoint: { every_steps: 100, keep: 5, keep_every_steps: 1000 },
    created_at: "",
    created_by: { id: null, name: "ann" },
    runs: 1,
  };
}

/** What of a run its submission said. */
const ASKED = {
  parameters: { epochs: 5, patience: null, note: "null", shape: "wide", layers: [8, 4] },
  resources: { replicas: 6, platform: "cpu", spread: "balance" },
  limits: {
    queue_s: 0.5,
    run_s: 3600,
    step_s: 12.5,
    first_step_s: 300,
    rendezvous_s: 40,
    grace_s: 0,
  },
  retries: { user: 2, infrastructure: 7 },
  priority: -3,
  labels: { team: "vision", note: "two words, one comma", empty: "" },
  wait_for_devices: true,
  resume_from: "ckp_1",
} as const;

function runOf(strategy: JobSpec["strategy"]): Run {
  return { ...ASKED, spec: versionOf(strategy) } as unknown as Run; // the rest is of no submission
}

describe("edit and run", () => {
  it.each(STRATEGIES)("submits the same run where nothing was edited, with %j", (strategy) => {
    const draft = draftOfRun(runOf(strategy), PROGRAM);
    const { job, number: _, ...version } = versionOf(strategy);
    const { program, record, checkpoint } = version;
    expect(buildRequest(draft, program.bundle, ENTRYPOINT).request).toEqual({
      job: { name: job, program, strategy, record, checkpoint },
      ...ASKED,
    });
  });

  it("keeps whole numbers beyond those of a float, also in the draft that the browser keeps", () => {
    const asked = { epochs: 1152921504606846977n, layers: [9007199254740993n] };
    saveDraft(draftOfRun({ ...runOf(MIRRORED), parameters: asked }, PROGRAM));

    const draft = loadDraft();

    expect(draft.parameters).toEqual({ epochs: "1152921504606846977", layers: "[9007199254740993]" });
    expect(draft.origin.parameters).toEqual(asked);
    expect(buildRequest(draft, "sha256:00", ENTRYPOINT).request?.parameters).toEqual(asked);
  });

  it("submits the same version of a job", () => {
    const version = versionOf(TPU);
    const { request } = buildRequest(draftOfVersion(version, PROGRAM), "sha256:00", ENTRYPOINT);
    const { program, strategy, record, checkpoint } = version;
    expect(request?.job).toEqual({ name: version.job, program, strategy, record, checkpoint });
  });

  it("submits a program of several files as it is stored, under its job's name", () => {
    const version = versionOf(MIRRORED);
    const keptProgram = { bundle: version.program.bundle, job: version.job, version: version.number };
    const draft = draftOfRun(runOf(MIRRORED), { keptProgram });
    expect(programOf(draft, null)).toEqual({ kind: "kept", kept: keptProgram });
    const unnamed = buildRequest({ ...draft, jobName: " " }, keptProgram.bundle, ENTRYPOINT).request;
    expect(unnamed?.job).toMatchObject({ name: "night-digits", program: version.program });
  });

  it("replaces a kept program by a file or by code", () => {
    const keptProgram = { bundle: "sha256:00", job: "night-digits", version: 3 };
    const draft = draftOfRun(runOf(MIRRORED), { keptProgram });
    const zip = new File(["PK"], "new.zip");
    expect(programOf(draft, zip)).toEqual({ kind: "zip", file: zip });
    const { filename, source } = PROGRAM;
    expect(programOf({ ...draft, ...programPart(filename, source) }, null)).toEqual({
      kind: "text",
      ...PROGRAM,
    });
  });

  it("changes what was edited and nothing else", () => {
    const run = runOf(MIRRORED);
    const draft = draftOfRun(run, PROGRAM);
    const unedited = buildRequest(draft, "sha256:00", ENTRYPOINT).request;
    const edited = buildRequest(
      {
        ...draft,
        executor: "mpmd",
        checkpointEvery: "",
        reductionsEvery: "2",
        largeReductionsEvery: "500",
        runLimit: "60",
        userRetries: "0",
        spread: "one_host",
        parameters: { ...draft.parameters, note: "new" },
      },
      "sha256:00",
      ENTRYPOINT,
    ).request;
    expect(edited).toEqual({
      ...unedited,
      job: {
        ...unedited?.job,
        strategy: { ...MIRRORED, executor: "mpmd" },
        record: { reductions_every: 2, large_reductions_every: 500, on_divergence: "warn" },
        checkpoint: { every_steps: null, keep: 5, keep_every_steps: 1000 },
      },
      parameters: { ...ASKED.parameters, note: "new" },
      resources: { ...ASKED.resources, spread: "one_host" },
      limits: { ...ASKED.limits, run_s: 60 },
      retries: { user: 0, infrastructure: 7 },
    });
  });

  it("leaves out the old strategy's options where another was chosen", () => {
    const draft = { ...draftOfRun(runOf(TPU), PROGRAM), strategy: "mirrored" } as const;
    expect(buildRequest(draft, "sha256:00", ENTRYPOINT).request?.job.strategy).toEqual({
      kind: "mirrored",
      batch: "global",
      executor: "pmap",
    });
  });

  it("says what it keeps that no field shows", () => {
    expect(keptOf(draftOfRun(runOf(MIRRORED), PROGRAM))).toEqual([
      "strategy.cross_device_ops=hierarchical",
      "strategy.collectives=jax",
      "checkpoint.keep=5",
      "checkpoint.keep_every_steps=1000",
      "limits.rendezvous_s=40",
      "retries.infrastructure=7",
    ]);
  });
});
