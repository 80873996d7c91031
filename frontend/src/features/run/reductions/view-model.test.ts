import { describe, expect, it } from "vitest";
import { array, reduction, scalar } from "../testing";
import { inOrder, nearestStep, stepBeside } from "./names";
import { naiveWeights, viewOf } from "./view-model";

const ragged = reduction({
  op: "mean",
  axis: 0,
  inputs: [array([0, 1, 2, 3]), array([4, 5])],
  counts: [4, 2],
  denominator: 6,
  output: scalar(2.5),
});

describe("viewOf", () => {
  it("puts the right mean beside the mean of means where replicas hold different numbers of elements", () => {
    const view = viewOf(ragged);

    expect([view.scalar, view.naive, view.ragged]).toEqual([2.5, 3, true]);
    expect(view.inputs.map((input) => input.own)).toEqual([1.5, 4.5]);
    expect(view.recomputed).toMatchObject({ kind: "worked_out", reproduces: true });
  });

  it("holds every mark of a mean on its scale", () => {
    const { scale } = viewOf(ragged);

    const shares = [1.5, 2.5, 3, 4.5].map((value) => scale?.at(value) ?? -1);

    expect(shares.every((share) => share >= 0 && share <= 1)).toBe(true);
  });

  it("has no scale and no mean of means where the result is an array", () => {
    const view = viewOf(
      reduction({ op: "mean", inputs: [array([1, 2]), array([3, 4])], output: array([2, 3]) }),
    );

    expect([view.scale, view.naive, view.scalar]).toEqual([null, null, null]);
    expect(view.heat).toEqual({ low: 1, middle: 2.5, high: 4 });
  });

  it("draws the strips of large arrays on one scale", () => {
    const strip = { min: [-2, null], max: [1, null], not_finite: [0, 9] };
    const view = viewOf(reduction({ inputs: [{ ...array([]), shape: [2000], values: null, strip }] }));

    expect(view.inputs[0]?.strip).toEqual([
      { min: -2, max: 1, notFinite: 0 },
      { min: null, max: null, notFinite: 9 },
    ]);
    expect(view.heat).toMatchObject({ low: -2 });
  });
});

describe("naiveWeights", () => {
  it("tells what one element would weigh, per distinct count", () => {
    expect(naiveWeights([4, 2])).toBe("1/8 and 1/4");
    expect(naiveWeights([4, 3, 2])).toBe("1/12 to 1/6");
    expect(naiveWeights([5, 0])).toBe("1/10");
  });
});

describe("recorded steps", () => {
  const steps = [0, 10, 40];

  it("moves to the neighbour of any step, recorded or not", () => {
    expect([stepBeside(steps, 10, 1), stepBeside(steps, 10, -1), stepBeside(steps, 12, -1)]).toEqual([
      40, 0, 10,
    ]);
    expect([stepBeside(steps, 40, 1), stepBeside(steps, 0, -1)]).toEqual([null, null]);
  });

  it("snaps to the nearest", () => {
    expect([nearestStep(steps, 4), nearestStep(steps, 30), nearestStep([], 3)]).toEqual([0, 40, null]);
  });

  it("lists what the program reduces before the all-reduces inside its steps", () => {
    const name = (text: string, origin: "host" | "in_step") => ({
      name: text,
      op: "mean" as const,
      axis: null,
      origin,
      recorded: 1,
      steps: [0],
      ragged_steps: [],
    });

    const ordered = inOrder([name("all_reduce", "in_step"), name("loss10", "host"), name("loss2", "host")]);

    expect(ordered.map((each) => each.name)).toEqual(["loss2", "loss10", "all_reduce"]);
  });
});
