import { describe, expect, it } from "vitest";
import { python, shell } from "@/lib/code";
import { EMPTY_DRAFT } from "./draft";
import { buildRequest } from "./request";
import { asCli, asCurl, asPython } from "./snippets";

const ENTRYPOINT = {
  entrypoint: "digits:main",
  summary: "",
  parameters: [{ name: "note", type: "str" as const, required: false, default: "" }],
};

function requestOf(part: Partial<typeof EMPTY_DRAFT>) {
  const built = buildRequest({ ...EMPTY_DRAFT, filename: "digits.py", ...part }, "sha256:00", ENTRYPOINT);
  if (!built.request) throw new Error(JSON.stringify(built.errors));
  return built.request;
}

describe("the same run from code", () => {
  it("has whole numbers beyond those of a float in full", () => {
    const request = { ...requestOf({}), parameters: { seed: 1152921504606846977n } };

    expect(asPython(request, "digits.py")).toContain('parameters={"seed": 1152921504606846977}');
    expect(asCli(request, "digits.py")).toContain("-p seed=1152921504606846977");
    expect(asCurl(request, null, "http://here")).toContain('    "seed": 1152921504606846977\n');
  });

  it("is short in Python where all is as usual", () => {
    expect(asPython(requestOf({}), "digits.py")).toBe(
      `from drumline import Client

run = Client().submit(
    "digits.py",
    name="digits",
    replicas=8,
)
print(run.wait().result)`,
    );
  });

  it("imports the specs that it needs", () => {
    const text = asPython(
      requestOf({ batch: "per_replica", runLimit: "60", stepLimit: "5", userRetries: "2" }),
      "digits.py",
    );
    expect(text).toContain("from drumline.contracts.spec import Limits, MirroredSpec, Retries");
    expect(text).toContain('strategy=MirroredSpec(batch="per_replica")');
    expect(text).toContain("limits=Limits(run_s=60, step_s=5)");
    expect(text).toContain("retries=Retries(user=2)");
  });

  it("says what was kept of an old run", () => {
    const request = requestOf({
      strategy: "tpu",
      spread: "one_host",
      computationShape: "1x1x1x2",
      reductionsEvery: "5",
      origin: {
        record: { reductions_every: 5, on_divergence: "warn" },
        checkpoint: { keep: 4 },
        limits: { grace_s: 30, rendezvous_s: 40 },
        retries: { user: 0, infrastructure: 7 },
      },
    });
    const text = asPython(request, "digits.py");
    expect(text).toContain(
      "from drumline.contracts.spec import CheckpointSpec, Limits, RecordSpec, Retries, TpuSpec",
    );
    expect(text).toContain("strategy=TpuSpec(computation_shape=[1, 1, 1, 2])");
    expect(text).toContain('spread="one_host"');
    expect(text).toContain("limits=Limits(rendezvous_s=40)");
    expect(text).toContain("retries=Retries(infrastructure=7)");
    expect(text).toContain("record=RecordSpec(reductions_every=5)");
    expect(text).toContain("checkpoint=CheckpointSpec(keep=4)");
    const command = asCli(request, "digits.py");
    for (const flag of [
      "-s 'computation_shape=[1,1,1,2]'",
      "--spread one_host",
      "--rendezvous-limit 40",
      "--infrastructure-retries 7",
      "--keep 4",
      "--record reductions_every=5",
    ])
      expect(command).toContain(flag);
  });

  it("quotes for the shell what a shell would take apart", () => {
    const text = asCli(
      requestOf({ parameters: { note: "it's $HOME" }, labels: "team=vision" }),
      "my digits.py",
    );
    expect(text).toContain("drumline submit 'my digits.py'");
    expect(text).toContain(`-p 'note=it'\\''s $HOME'`);
    expect(text).toContain("--label team=vision");
  });

  it("never holds a token in curl", () => {
    expect(asCurl(requestOf({}), "digits.py", "http://127.0.0.1:7700")).toContain("Bearer $DRUMLINE_TOKEN");
  });

  it("uploads nothing in curl where the server has the program", () => {
    const text = asCurl(requestOf({}), null, "http://127.0.0.1:7700");
    expect(text).not.toContain("/bundles");
    expect(text).toContain('"bundle": "sha256:00"');
  });

  it("writes values as Python and as shell words", () => {
    expect(python({ a: [true, null, "x", 1.5] })).toBe('{"a": [True, None, "x", 1.5]}');
    expect([shell("plain-1.0"), shell("")]).toEqual(["plain-1.0", "''"]);
  });
});
