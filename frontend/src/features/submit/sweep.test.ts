import { describe, expect, it } from "vitest";
import type { ProgramEntrypoint } from "@/api/schema";
import { exactText } from "@/lib/wire-numbers";
import { EMPTY_DRAFT } from "./draft";
import { asCli, asCurl, asPython } from "./snippets";
import { buildSweep, sizeOf } from "./sweep";

const ENTRYPOINT: ProgramEntrypoint = {
  entrypoint: "digits:main",
  summary: "",
  parameters: [
    { name: "rate", type: "float", required: true, default: null },
    { name: "epochs", type: "int", required: false, default: 5 },
    { name: "layers", type: "list", items: "int", required: false, default: [8] },
    { name: "note", type: "str", required: false, default: "" },
  ],
};

function built(parameters: Record<string, string>) {
  const draft = { ...EMPTY_DRAFT, filename: "digits.py", sweep: true, sweepName: "rates", parameters };
  return buildSweep(draft, "sha256:00", ENTRYPOINT);
}

function requestOf(parameters: Record<string, string>) {
  const { request, errors } = built(parameters);
  if (!request) throw new Error(JSON.stringify(errors));
  return request;
}

describe("a sweep from the Submit form", () => {
  it("varies what has several values and shares the rest", () => {
    const request = requestOf({ rate: "0.1, 0.01,1e-3", epochs: "7", layers: "[8], [8, 4]", note: "a b" });
    expect(request.sweep.parameters).toEqual({ rate: [0.1, 0.01, 0.001], layers: [[8], [8, 4]] });
    expect(request.run.parameters).toEqual({ epochs: 7, note: "a b" });
    expect(request.name).toBe("rates");
    expect(sizeOf(request.sweep.parameters)).toBe(6);
  });

  it("varies whole numbers beyond those of a float as they were typed", () => {
    const seeds = "1152921504606846976, 1152921504606846977";
    const { sweep, run } = requestOf({ rate: "0.5", epochs: seeds, layers: "[9007199254740993]" });

    expect(exactText(sweep.parameters)).toBe('{"epochs":[1152921504606846976,1152921504606846977]}');
    expect(exactText(run.parameters)).toBe('{"rate":0.5,"layers":[9007199254740993]}');
  });

  it("takes one list for one value", () => {
    expect(requestOf({ rate: "1,2", layers: "[8, 4]" }).run.parameters).toEqual({ layers: [8, 4] });
  });

  it.each([
    [{ rate: "0.1" }, "sweep"],
    [{ rate: "0.1, fast" }, "parameters.rate"],
    [{ epochs: "1, 2" }, "parameters.rate"],
    [{ rate: "1,2", layers: "[8], [8" }, "parameters.layers"],
    [{ rate: Array.from({ length: 10_001 }, (_, at) => at).join() }, "sweep"],
  ])("says what is wrong with %j", (parameters, field) => {
    expect(Object.keys(built(parameters as Record<string, string>).errors ?? {})).toEqual([field]);
  });

  it("is the same from code", () => {
    const { name, run, sweep } = requestOf({ rate: "0.1, 0.01", epochs: "7" });
    const swept = { name, grid: sweep.parameters };
    expect(asPython(run, "digits.py", swept)).toContain(
      'Client().sweep(\n    "digits.py",\n    {"rate": [0.1, 0.01]},',
    );
    expect(asPython(run, "digits.py", swept)).toContain('batch_name="rates"');
    expect(asCli(run, "digits.py", swept)).toContain("drumline sweep digits.py \\\n  --sweep rate=0.1,0.01");
    const curl = asCurl(run, "digits.py", "http://here", swept);
    expect(curl).toContain("http://here/api/v1/runs:sweep");
    expect(JSON.parse(curl.slice(curl.indexOf("-d '") + 4, -1))).toEqual({ name, run, sweep });
  });
});
