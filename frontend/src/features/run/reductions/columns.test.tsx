import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import { array, reduction, scalar } from "../testing";
import { ReduceColumn } from "./reduce-column";
import { ReplicaRows } from "./replica-rows";
import { ResultColumn } from "./result-column";
import { viewOf } from "./view-model";

afterEach(cleanup);

const partial = reduction({
  op: "mean",
  axis: 0,
  inputs: [array([0, 1, 2, 3]), array([4, 5])],
  counts: [4, 2],
  denominator: 6,
  output: scalar(2.5),
});

function show(some = partial) {
  const view = viewOf(some);
  render(
    <>
      <ReplicaRows view={view} />
      <ReduceColumn view={view} />
      <ResultColumn view={view} />
    </>,
  );
}

describe("numbers that are none", () => {
  const bad = (some: object) => ({ ...scalar(Number.NaN), values: ["NaN"], nan_count: 1, ...some });

  it("get no tick, although the result follows from them", () => {
    const nan = bad({}) as unknown as ReturnType<typeof scalar>;
    show(reduction({ op: "sum", axis: null, inputs: [scalar(1), nan], counts: [1, 1], output: nan }));

    const verdict = screen.getByTestId("verdict");
    expect(verdict.textContent).toBe("⚠ follows from the values shown, of which 2 are not finite");
    expect(verdict.className).not.toContain("text-ok");
    expect(document.body.textContent).not.toContain("✓");
    expect(screen.getByTestId("not-finite").textContent).toBe(
      "1 of the elements put in and 1 of the result are NaN or infinite.",
    );
  });

  it("are counted by kind where a replica put in nothing else", () => {
    const long = (values: number[], some: object) => array(values, { min: 0, max: 1, ...some });
    const finite = long(Array(40).fill(1), {});
    const none = long([...Array(38).fill(Number.NaN), Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY], {
      nan_count: 38,
      inf_count: 2,
    });
    const statistics = { ...none, values: null, nan_count: 40, inf_count: 0 };
    show(reduction({ inputs: [finite, none, statistics], counts: [1, 1, 1], output: none }));

    expect(screen.getAllByText(/^no finite value/).map(({ textContent }) => textContent)).toEqual([
      "no finite value: 38 NaN, 2 Inf",
      "no finite value: 40 NaN",
    ]);
  });

  it("get no tick where the result does not follow", () => {
    show(
      reduction({ op: "sum", axis: null, inputs: [scalar(1), scalar(1)], counts: [1, 1], output: scalar(3) }),
    );

    expect(document.body.textContent).not.toContain("✓");
  });
});

describe("the three columns", () => {
  it("carry the values in full, and the values reproduce the result", () => {
    show();

    const rows = screen.getAllByTestId("replica-input");
    const values = rows.flatMap((row) => (row.dataset.values ?? "").split(",").map(Number));
    const counts = rows.map((row) => Number(row.dataset.count));
    const result = Number(screen.getByTestId("reduction-result").dataset.values);

    const sum = (numbers: number[]) => numbers.reduce((a, b) => a + b, 0);
    expect(sum(values) / sum(counts)).toBe(result);
    expect(screen.getByTestId("verdict").dataset.reproduces).toBe("true");
  });

  it("print the right denominator and cross out the mean of means", () => {
    show();

    expect(screen.getByTestId("denominator").textContent).toBe("6");
    const wrong = screen.getByTestId("mean-of-means");
    expect([wrong.tagName, wrong.textContent]).toEqual(["S", "3"]);
    expect(screen.getByText("would weigh elements 1/8 and 1/4")).toBeTruthy();
  });

  it("say that a replica without elements contributes nothing and has no mean", () => {
    show(
      reduction({
        ...partial,
        inputs: [array([1, 3]), array([])],
        counts: [2, 0],
        denominator: 2,
        output: scalar(2),
      }),
    );

    expect(screen.getByText("contributes nothing")).toBeTruthy();
    expect(screen.getByText("1 of 2 replicas hold no element and have no mean")).toBeTruthy();
  });

  it("tell when the result does not follow from the values", () => {
    show(reduction({ ...partial, output: scalar(3) }));

    expect(screen.getByTestId("verdict").textContent).toContain("differs by 0.5");
  });

  it("draw the shapes that do not fit", () => {
    show(reduction({ ...partial, axis: null }));

    expect(screen.getByTestId("shapes-differ").textContent).toBe(
      "Shapes (4) and (2) differ: reducing them needs axis=0.",
    );
  });
});

describe("a large array of a step", () => {
  const part = (norm: number, cosine: number) => ({
    ...array([]),
    shape: [2000],
    values: null,
    norm,
    cosine,
    strip: { min: [-1], max: [1], not_finite: null },
  });

  it("has strips, norms and cosines, and says who stands apart and what recording it costs", () => {
    show(
      reduction({
        inputs: [part(1, 0.9), part(9, -0.8)],
        output: part(2, 1),
        outliers: [
          { replica: 1, by: "norm", value: 9, median: 1, deviations: 5.25 },
          { replica: 1, by: "cosine", value: -0.8, median: 0.9, deviations: null },
        ],
        outlier_count: 2,
        sampling: { every: 500, is_chosen: true, extra_s: 0.02, plain_s: 0.01 },
      }),
    );

    expect(screen.getAllByRole("img", { name: /^Values of replica/ })).toHaveLength(2);
    expect(screen.getByTestId("outliers").textContent).toBe(
      "r1 norm 9: 5.3 deviations highr1 cosine -0.8: low, most others agree",
    );
    expect(screen.getByTestId("sampling").textContent).toBe("Recorded every 500 calls, 0.4 % of the time.");
  });
});

describe("large arrays", () => {
  const large = array(null, { shape: [16_385] });
  const shown = (some: Partial<Parameters<typeof reduction>[0]>) => {
    show(reduction({ inputs: [large, large], output: large, ...some }));
    return screen.getByTestId("reduction-result").textContent;
  };

  it("say why not every element of them is kept", () => {
    expect(shown({ not_whole: "array_bytes" })).toContain(
      "16,385 elements: inputs not kept whole because an array has more than 64 KiB.",
    );
  });

  it("say that every element is kept apart from the page", () => {
    expect(shown({ whole_bytes: 24_000 })).toContain("every one is kept");
  });
});
