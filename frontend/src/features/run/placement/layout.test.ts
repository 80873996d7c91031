import { describe, expect, it } from "vitest";
import { placedDevice } from "../testing";
import { groupByHost, hasCoordinates } from "./groups";
import { HitGrid } from "./hit-grid";
import { moveTo } from "./keyboard";
import { DOCKED, detailFor, layOut } from "./layout";

const onHost = (host: string, n: number, from = 0) =>
  Array.from({ length: n }, (_, i) => placedDevice({ host, host_name: host, index: i, replica: from + i }));

const cube = (size: number) =>
  Array.from({ length: size ** 3 }, (_, i) =>
    placedDevice({
      index: i,
      replica: i,
      platform: "tpu",
      coords: [i % size, Math.floor(i / size) % size, Math.floor(i / size ** 2)],
    }),
  );

describe("layOut by host", () => {
  it("puts 8 devices of a host in one row of equal squares that do not touch", () => {
    const layout = layOut(onHost("a", 8), "host", 1000);

    expect(layout.groups).toHaveLength(1);
    expect(new Set(layout.cells.map((cell) => cell.y)).size).toBe(1);
    expect(layout.cells.every((cell) => cell.width === cell.height)).toBe(true);
    const xs = layout.cells.map((cell) => cell.x);
    expect(xs.every((x, i) => i === 0 || x >= (xs[i - 1] ?? 0) + layout.cellSize + layout.gap)).toBe(true);
  });

  it("keeps every cell inside its group and groups apart", () => {
    const layout = layOut([...onHost("b", 12), ...onHost("a", 5, 12), ...onHost("c", 8, 17)], "host", 620);

    for (const cell of layout.cells) {
      const group = layout.groups[cell.group];
      expect(group && cell.x >= group.x && cell.x + cell.width <= group.x + group.width).toBe(true);
      expect(group && cell.y >= group.y && cell.y + cell.height <= group.y + group.height).toBe(true);
    }
    const bottoms = layout.groups.map((group) => group.y + group.height);
    expect(layout.height).toBe(Math.max(...bottoms));
    expect(layout.groups[1]?.y).toBeGreaterThan((layout.groups[0]?.y ?? 0) + (layout.groups[0]?.height ?? 0));
  });

  it("orders hosts as people count and parameter devices behind computing ones", () => {
    const devices = [
      placedDevice({ host: "h10", host_name: "gpu-10", replica: 1 }),
      placedDevice({ host: "h2", host_name: "gpu-2", platform: "cpu", replica: null }),
      placedDevice({ host: "h2", host_name: "gpu-2", platform: "gpu", replica: 0 }),
    ];

    expect(groupByHost(devices).map((group) => group.members)).toEqual([[2, 1], [0]]);
  });

  it.each([
    [8, "large"],
    [64, "large"],
    [65, "cells"],
    [10_000, "cells"],
    [10_001, "hosts"],
  ] as const)("draws %i devices as %s", (devices, detail) => {
    expect(detailFor(devices)).toBe(detail);
  });

  it("aggregates beyond 10,000 devices to one tile per host that says how many it stands for", () => {
    const devices = Array.from({ length: 1251 }, (_, host) => onHost(`h${host}`, 8, host * 8)).flat();

    const layout = layOut(devices, "host", 1000);

    expect(layout.cells).toHaveLength(1251);
    expect(layout.cells.every((cell) => cell.stands === 8)).toBe(true);
  });
});

describe("layOut by coordinates", () => {
  it("draws a 4x4x4 torus as four slices of z, each with x to the right and y downwards", () => {
    const layout = layOut(cube(4), "torus", 1200);

    expect(layout.groups.map((group) => group.label)).toEqual(["z = 0", "z = 1", "z = 2", "z = 3"]);
    const cell = (device: number) => layout.cells.find((each) => each.device === device);
    expect(cell(1)?.x).toBeGreaterThan(cell(0)?.x ?? 0);
    expect(cell(4)?.y).toBeGreaterThan(cell(0)?.y ?? 0);
    expect(cell(16)?.group).toBe(1);
  });

  it("splits the square of a chip between its two cores", () => {
    const cores = [0, 1].map((core) =>
      placedDevice({ index: core, replica: core, coords: [0, 0, 0], core_on_chip: core }),
    );

    const [left, right] = layOut(cores, "torus", 800).cells;

    expect(left && right && left.x + left.width === right.x && left.y === right.y).toBe(true);
    expect(left?.width).toBe((left?.height ?? 0) / 2);
  });

  it("falls back to hosts where a device reports no coordinates or two report the same", () => {
    const [first, ...others] = cube(2);
    const withoutCoords = [placedDevice({ coords: null }), ...others];

    expect(hasCoordinates(withoutCoords)).toBe(false);
    expect(first && hasCoordinates([first, { ...first, device: "another" }])).toBe(false);
    expect(layOut(withoutCoords, "torus", 800).kind).toBe("host");
  });
});

describe("layOut by replica", () => {
  it("keeps the logical devices of a replica side by side in one row", () => {
    const devices = Array.from({ length: 12 }, (_, i) =>
      placedDevice({ index: i, replica: i % 6, logical: Math.floor(i / 6) }),
    );

    const layout = layOut(devices, "replica", 900);

    for (let replica = 0; replica < 6; replica++) {
      const [a, b] = layout.cells.filter((cell) => devices[cell.device]?.replica === replica);
      expect(a?.row).toBe(b?.row);
      expect(Math.abs((a?.column ?? 0) - (b?.column ?? 9))).toBe(1);
    }
  });
});

describe("HitGrid", () => {
  it("finds every cell at its centre and nothing in the gaps", () => {
    const layout = layOut(onHost("a", 20), "host", 700);
    const grid = new HitGrid(layout.cells, layout.cellSize);

    layout.cells.forEach((cell, index) => {
      expect(grid.at(cell.x + cell.width / 2, cell.y + cell.height / 2)).toBe(index);
      expect(grid.at(cell.x + cell.width + layout.gap / 2, cell.y + cell.height / 2)).toBe(-1);
    });
    expect(grid.at(-5, -5)).toBe(-1);
  });
});

describe("moveTo", () => {
  it("walks a grid with the arrows and stops at its edge", () => {
    const layout = layOut(onHost("a", 16), "host", 1000);

    expect(moveTo(layout, 0, "ArrowRight")).toBe(1);
    expect(moveTo(layout, 1, "ArrowDown")).toBe(9);
    expect(moveTo(layout, 9, "ArrowLeft")).toBe(8);
    expect(moveTo(layout, 0, "ArrowLeft")).toBeNull();
    expect(moveTo(layout, 3, "End")).toBe(15);
    expect(moveTo(layout, 3, "x")).toBeNull();
  });

  it("keeps x and y when PageDown moves along z", () => {
    const layout = layOut(cube(3), "torus", 1200);
    const at = layout.cells.findIndex((cell) => cell.device === 5);

    const next = moveTo(layout, at, "PageDown");

    expect(next !== null && layout.cells[next]?.device).toBe(14);
    expect(moveTo(layout, at, "PageUp")).toBeNull();
  });
});

describe("layOut for central storage", () => {
  it("puts the parameter device in the dock and all others on the grid", () => {
    const devices = [
      ...onHost("a", 8),
      placedDevice({ host: "a", host_name: "a", replica: null, logical: null }),
    ];

    const layout = layOut(devices, "host", 1000, "bus");

    const docked = layout.cells.filter((cell) => cell.group === DOCKED);
    expect(docked.map((cell) => cell.device)).toEqual([8]);
    expect(layout.cells).toHaveLength(9);
    expect(layout.cells.every((cell) => cell.group === DOCKED || cell.y >= (layout.dock?.height ?? 0))).toBe(
      true,
    );
  });
});

describe("layOut on a narrow page", () => {
  it("folds 8 devices to rows of 4", () => {
    const layout = layOut(onHost("a", 8), "host", 360);

    expect(layout.groups[0]).toMatchObject({ columns: 4, rows: 2 });
    expect(layout.width).toBeLessThanOrEqual(360);
  });
});
