import { describe, expect, it } from "vitest";
import type { ComparedCurve, Run } from "@/api/schema";
import { comparedOf, linesOf, outcomesOf } from "./model";
import { devicesByReplica } from "./placements";
import { bandOf } from "./quantiles";
import { compareSearch, parseRuns } from "./search";
import { differing, labelOf, numbersOf, rowsOf } from "./table";

const id = (nth: number) => `run_${String(nth).padStart(26, "0")}`;

function run(nth: number, parameters: Run["parameters"], result: Run["result"] = null): Run {
  return {
    id: id(nth),
    job: "digits",
    version: 1,
    state: "SUCCEEDED",
    parameters,
    result,
    labels: {},
    hosts: [],
    spec: { program: { entrypoint: "digits:main" } },
    started_at: null,
    ended_at: null,
  } as unknown as Run;
}

function curve(nth: number, means: (number | "NaN" | null)[]): ComparedCurve {
  const numbers = means.map((mean) => (mean === "NaN" ? null : mean));
  return {
    run: id(nth),
    name: "loss",
    unit: "",
    n: means.length,
    last_step: 0,
    points: {
      bucket: means.map((_, at) => at),
      x: means.map((_, at) => at),
      min: numbers,
      max: numbers,
      mean: numbers,
      last: numbers,
      count: means.map(() => 1),
      not_finite: means.map(() => 0),
    },
  };
}

describe("parseRuns", () => {
  it("keeps ids of runs, each once, and drops what is none", () => {
    expect(parseRuns(`${id(1)},nonsense,${id(2)},${id(1)}`)).toEqual([id(1), id(2)]);
    expect(compareSearch({ runs: "x", base: id(3) })).toMatchObject({ runs: undefined, base: id(3) });
  });
});

describe("rowsOf", () => {
  const runs = [
    run(1, { rate: 0.1, width: 4 }, { loss: 1 }),
    run(2, { rate: 1, width: 4 }, { loss: 1, extra: { a: 2 } }),
  ];

  it("puts what differs first in each section, and knows what one of them lacks", () => {
    const rows = rowsOf(runs, 0);
    const of = (section: string) =>
      rows.filter((row) => row.section === section).map((row) => [row.name, row.differs]);

    expect(of("Parameters")).toEqual([
      ["rate", true],
      ["width", false],
    ]);
    expect(of("Results")[0]).toEqual(["extra.a", true]);
    expect(rows.find(({ name }) => name === "extra.a")?.values).toEqual([undefined, "2"]);
    expect(rows.find(({ name }) => name === "program.entrypoint")?.differs).toBe(false);
  });

  it.each([
    ["of whole numbers", 12345678901, 12345678902, "…5678901", "…5678902"],
    ["beyond those of a float", 2n ** 60n, 2n ** 60n + 1n, "…6846976", "…6846977"],
    ["behind the sixth", 0.12345678, 0.12345679, "0.12345678", "0.12345679"],
  ])("tells values apart by digits %s, and shows them", (_, one, other, ...named) => {
    const seeds = [run(1, { seed: one }, { found: one }), run(2, { seed: other }, { found: other })];
    const rows = rowsOf(seeds, 0);

    const [seed, found] = ["seed", "found"].map((name) => rows.find((row) => row.name === name));
    expect(seed).toMatchObject({ differs: true, values: [String(one), String(other)] });
    expect(found).toMatchObject({ differs: true, values: [String(one), String(other)] });
    expect(comparedOf([id(1), id(2)], seeds, {}).map(({ label }) => label.split(" ")[0])).toEqual([
      `seed=${named[0]}`,
      `seed=${named[1]}`,
    ]);
    expect(outcomesOf(comparedOf([id(1), id(2)], seeds, {})).items[1]?.metrics).toEqual({ found: other });
  });

  it("calls a run by what tells it apart", () => {
    expect(labelOf(runs[0] as Run, ["rate"], "r-1")).toBe("rate=0.1 r-1");
    expect(labelOf(runs[0] as Run, [], "r-1")).toBe("digits v1 r-1");
  });

  it("shows what a run left out as its program's default", () => {
    const spec = { program: { entrypoint: "digits:main" }, defaults: { rate: 0.1, width: 8 } };
    const [left, given, same] = [run(1, {}), run(2, { rate: 1 }), run(3, { rate: 0.1, width: 8 })].map(
      (each) => ({ ...each, spec }) as unknown as Run,
    ) as [Run, Run, Run];

    const rows = rowsOf([left, given], 0).filter(({ section }) => section === "Parameters");
    expect(rows.map(({ name, values, differs }) => [name, values, differs])).toEqual([
      ["rate", ["0.1", "1"], true],
      ["width", ["8", "8"], false],
    ]);
    expect(rows.map(({ byDefault }) => byDefault)).toEqual([
      [true, false],
      [true, true],
    ]);
    expect(rowsOf([left, given], 0).filter(({ name }) => name.startsWith("defaults"))).toEqual([]);
    expect(differing([left, given])).toEqual(["rate"]);
    expect(differing([left, same])).toEqual([]);
    expect(labelOf(left, ["rate"], "r-1")).toBe("rate=0.1 r-1");
    expect(
      outcomesOf([{ run: left }, { run: given }] as never).items.map(({ parameters }) => parameters),
    ).toEqual([
      { rate: 0.1, width: 8 },
      { rate: 1, width: 8 },
    ]);
  });

  it("draws first an outcome that most runs have", () => {
    const results = [
      { alone: 1, loss: 2 },
      { loss: 3, other: 1 },
      { other: 2, loss: 1 },
    ];
    const compared = results.map((result, at) => ({ run: run(at, {}, result) }));
    expect(outcomesOf(compared as never).metrics.map(({ name }) => name)).toEqual(["loss", "other", "alone"]);
  });

  it("takes the numbers of a result, however deep", () => {
    expect(numbersOf({ loss: 1, a: { b: 2 }, text: "x" })).toEqual({ loss: 1, "a.b": 2 });
    expect(numbersOf(3)).toEqual({ result: 3 });
  });
});

describe("comparedOf and linesOf", () => {
  const curvesOf = (many: number) => ({
    curves: Array.from({ length: many }, (_, nth) => curve(nth, [nth, nth])),
    runs: [],
    width: 1,
    start: 0,
    end: 1,
  });
  const ids = (many: number) => Array.from({ length: many }, (_, nth) => id(nth));

  it("draws all but the hidden ones, the base over the others", () => {
    const compared = comparedOf(ids(3), [], { hide: id(2), base: id(1) });
    const lines = linesOf(curvesOf(3), compared, "loss");

    expect(lines.map((line) => [line.id, line.strong])).toEqual([
      [id(0), false],
      [id(1), true],
    ]);
  });

  it("draws of more than a hundred the band, the base and those that are chosen", () => {
    const compared = comparedOf(ids(101), [], { draw: id(7) });
    const lines = linesOf(curvesOf(101), compared, "loss");

    expect(lines.map((line) => line.id)).toEqual(["band", id(0), id(7)]);
    expect(lines[0]?.columns).toMatchObject({ min: [10, 10], mean: [50, 50], max: [90, 90] });
  });
});

describe("bandOf", () => {
  it("takes only finite values, and is a hole where there are none", () => {
    const band = bandOf([curve(0, [1, "NaN"]), curve(1, [3, null])]);

    expect(band.mean).toEqual([2, null]);
    expect(band.count).toEqual([2, 0]);
  });
});

describe("devicesByReplica", () => {
  it("names every device of a replica", () => {
    const device = (replica: number | null, index: number) => ({ replica, index, host_name: "a" });
    const devices = [device(0, 0), device(0, 1), device(1, 2), device(null, 3)];

    expect([...devicesByReplica({ devices } as Parameters<typeof devicesByReplica>[0])]).toEqual([
      [0, "a 0, a 1"],
      [1, "a 2"],
    ]);
  });
});
