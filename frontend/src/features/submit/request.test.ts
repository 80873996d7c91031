import { describe, expect, it } from "vitest";
import type { ProgramEntrypoint } from "@/api/schema";
import { EMPTY_DRAFT, jobNameOf } from "./draft";
import { buildRequest } from "./request";

const BUNDLE = `sha256:${"a".repeat(64)}`;
const ENTRYPOINT: ProgramEntrypoint = {
  entrypoint: "digits:main",
  summary: "",
  parameters: [
    { name: "epochs", type: "int", required: false, default: 20 },
    { name: "rate", type: "float", required: false, default: 0.5 },
    { name: "path", type: "str", required: true, default: null },
    { name: "layers", type: "list", items: "int", required: false, default: [64] },
  ],
};
const draft = { ...EMPTY_DRAFT, filename: "digits.py", jobName: "digits", parameters: { path: "a b" } };

describe("the request of the Submit form", () => {
  it("leaves what was not changed to the program's defaults", () => {
    const { request } = buildRequest(draft, BUNDLE, ENTRYPOINT);
    expect(request).toMatchObject({
      job: {
        name: "digits",
        program: { bundle: BUNDLE, entrypoint: "digits:main" },
        strategy: { kind: "mirrored" },
      },
      parameters: { path: "a b" },
      resources: { replicas: 8, platform: "any", spread: "pack" },
      limits: { run_s: null, step_s: null, first_step_s: null, queue_s: null, grace_s: 30 },
    });
  });

  it("reads typed texts by the parameter's type", () => {
    const parameters = { path: "1", epochs: "5", rate: "1e-3", layers: "[8, 8]" };
    const { request } = buildRequest({ ...draft, parameters }, BUNDLE, ENTRYPOINT);
    expect(request?.parameters).toEqual({ path: "1", epochs: 5, rate: 0.001, layers: [8, 8] });
  });

  it("says how often reductions are recorded where that is not as usual", () => {
    const recordOf = (some: Partial<typeof draft>) =>
      buildRequest({ ...draft, ...some }, BUNDLE, ENTRYPOINT).request?.job.record;

    expect(recordOf({})).toBeUndefined();
    expect(recordOf({ largeReductionsEvery: "200" })).toEqual({
      reductions_every: 10,
      large_reductions_every: 200,
    });
    const origin = {
      record: { reductions_every: 5, large_reductions_every: 50, on_divergence: "stop" },
    } as const;
    expect(recordOf({ origin, reductionsEvery: "5" })).toEqual({
      ...origin.record,
      large_reductions_every: null,
    });
    expect(buildRequest({ ...draft, largeReductionsEvery: "0" }, BUNDLE, ENTRYPOINT).errors).toEqual({
      "job.record.large_reductions_every": "must be a number of at least 1",
    });
  });

  it("names every field that is wrong at once", () => {
    const { errors } = buildRequest(
      { ...draft, replicas: "0", grace: "soon", labels: "team", parameters: { epochs: "1.5", layers: "[" } },
      BUNDLE,
      ENTRYPOINT,
    );
    expect(Object.keys(errors ?? {}).sort()).toEqual([
      "labels",
      "limits.grace_s",
      "parameters.epochs",
      "parameters.layers",
      "parameters.path",
      "resources.replicas",
    ]);
  });

  it("sends only the options that the chosen strategy has", () => {
    const { request } = buildRequest(
      { ...draft, strategy: "central_storage", parameterDevice: "cpu:0" },
      BUNDLE,
      ENTRYPOINT,
    );
    expect(request?.job.strategy).toEqual({
      kind: "central_storage",
      executor: "auto",
      parameter_device: "cpu:0",
    });
  });

  it.each(["pack", "balance", "one_host"] as const)("asks for the spread %s", (spread) => {
    const { request } = buildRequest({ ...draft, spread }, BUNDLE, ENTRYPOINT);
    expect(request?.resources.spread).toBe(spread);
  });

  it.each(["0", "-1", "soon"])("refuses a run limit of %s", (runLimit) => {
    const { errors } = buildRequest({ ...draft, runLimit }, BUNDLE, ENTRYPOINT);
    expect(Object.keys(errors ?? {})).toEqual(["limits.run_s"]);
  });

  it("reads labels as names and values", () => {
    const { request } = buildRequest({ ...draft, labels: "team=vision, note=a=b" }, BUNDLE, ENTRYPOINT);
    expect(request?.labels).toEqual({ team: "vision", note: "a=b" });
  });
});

describe("a job's name", () => {
  it.each([
    ["My digits.py", "my-digits"],
    ["_train_.zip", "train"],
    ["digits.py", "digits"],
  ])("of %s is %s", (file, name) => {
    expect(jobNameOf(file)).toBe(name);
  });
});
