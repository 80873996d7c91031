import { describe, expect, it } from "vitest";
import { actionsOf, chartView, overlaid } from "./chart-view";
import {
  formatLimits,
  formatSpecs,
  groupOf,
  isLog,
  parseLimits,
  parseSmoothing,
  parseSpecs,
  toggled,
} from "./view";

describe("charts in the address", () => {
  it("read as their metrics, and any name survives", () => {
    expect(parseSpecs("train/loss,val/loss;lr")).toEqual([["train/loss", "val/loss"], ["lr"]]);
    const odd = [
      ["a,b", "c;d"],
      ["100%", "%2C", "ä 日本"],
    ];

    expect(parseSpecs(formatSpecs(odd))).toEqual(odd);
  });

  it("fall away where they name nothing", () => {
    expect(parseSpecs(";,;")).toEqual([]);
    expect(formatSpecs([])).toBeUndefined();
  });

  it("are added once and taken away again", () => {
    const one = toggled(undefined, ["a", "b"]);

    expect(one).toBe("a,b");
    expect(toggled(toggled(one, ["lr"]), ["a", "b"])).toBe("lr");
  });
});

describe("limits in the address", () => {
  it("have one end or both, and names may hold colons and dots", () => {
    const limits = new Map([
      ["train/loss", { low: 0, high: 2.5 }],
      ["a:b..c", { low: undefined, high: 1e-3 }],
    ]);

    expect(formatLimits(limits)).toBe("train/loss:0..2.5;a:b..c:..0.001");
    expect(parseLimits(formatLimits(limits))).toEqual(limits);
  });

  it.each(["loss:2..1", "loss:..", "loss", "loss:a..b", ":0..1"])("%s means nothing", (text) => {
    expect(parseLimits(text).size).toBe(0);
  });
});

describe("chartView", () => {
  it("understands links from before metrics had a tab, and drops what means nothing", () => {
    const view = chartView({ x: "time", from: "3", to: "9", log: "true", smooth: "7", y: "x" });

    expect(view).toMatchObject({ x: "time", from: 3, to: 9, log: "1", smooth: 0.999, y: undefined });
    expect(chartView({ from: "9", to: "3", x: "epoch" })).toMatchObject({ x: undefined, from: undefined });
  });

  it("smooths by a weight below one", () => {
    expect([undefined, 0, -1, 0.9, 0.99991].map(parseSmoothing)).toEqual([
      undefined,
      undefined,
      undefined,
      0.9,
      0.999,
    ]);
  });
});

describe("actionsOf", () => {
  it("changes one chart and leaves the others as they are", () => {
    let view = chartView({ y: "lr:0..1", pin: "lr" });
    const act = () =>
      actionsOf(
        view,
        (next) => {
          view = { ...view, ...next };
        },
        ["loss"],
      );
    act().onLimits({ low: 0.5 });
    act().onPin?.();
    act().onWide();
    act().onLog();

    expect(view).toMatchObject({ y: "lr:0..1;loss:0.5..", pin: "lr;loss", wide: "loss", log: "loss" });
    expect(isLog(view.log, ["loss"])).toBe(true);
    expect(isLog(view.log, ["lr"])).toBe(false);
    act().onLimits({});
    expect(view.y).toBe("lr:0..1");
  });

  it("puts an overlay in the place of the one that it widens", () => {
    expect(overlaid({ pin: "lr" }, ["loss"], ["loss", "acc"])).toBe("lr;loss,acc");
    expect(overlaid({ pin: "loss,acc;lr" }, ["loss", "acc"], ["loss", "acc", "f1"])).toBe("loss,acc,f1;lr");
  });
});

describe("groupOf", () => {
  it("is what stands before the first slash", () => {
    expect(["train/loss", "a/b/c", "loss", "/odd"].map(groupOf)).toEqual(["train", "a", "", ""]);
  });
});
