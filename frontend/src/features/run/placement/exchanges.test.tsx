import { cleanup, render, screen, within } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import type { Exchange, Exchanges, ExchangeTotal, ProgramExchanges } from "@/api/schema";
import { placedDevice, placementOn } from "../testing";
import { hostLinks } from "./draw-hosts";
import { crossesHosts, crossingText } from "./exchanges";
import { ExchangesSection } from "./exchanges-section";
import { layOut } from "./layout";

afterEach(cleanup);

const gang = (hosts: number, each: number) =>
  Array.from({ length: hosts * each }, (_, i) =>
    placedDevice({
      device: `dev_${i}`,
      host: `hst_${Math.floor(i / each)}`,
      host_name: `gpu-${Math.floor(i / each)}`,
      index: i % each,
      replica: i,
    }),
  );

const total = (some: Partial<ExchangeTotal> = {}): ExchangeTotal => ({
  kind: "all_reduce",
  op: "mean",
  crosses_hosts: true,
  operations: 2,
  times: 2,
  bytes_per_step: 4096,
  varying: 0,
  ...some,
});

const exchange = (some: Partial<Exchange> = {}): Exchange => ({
  name: "dense/w",
  kind: "all_reduce",
  op: "mean",
  dtype: "float32",
  shape: [32, 8],
  size_bytes: 1024,
  times: 1,
  bytes_per_step: 1024,
  crosses_hosts: true,
  ...some,
});

const program = (some: Partial<ProgramExchanges> = {}): ProgramExchanges => ({
  name: "train",
  digest: "d",
  executor: "spmd",
  totals: [total()],
  exchanges: [exchange(), exchange({ name: "dense/large", size_bytes: 3072, bytes_per_step: 3072 })],
  more: 0,
  ...some,
});

const placement = (exchanges: Exchanges, hosts = 2) => placementOn(gang(hosts, 2), { exchanges });

const recorded = (...programs: ProgramExchanges[]): Exchanges => ({
  programs,
  more_programs: 0,
  not_recorded: null,
});

describe("the section of exchanges", () => {
  it("says what crosses between hosts with its payload, the largest exchange first", () => {
    const within1 = total({ kind: "permute", op: null, crosses_hosts: false, times: 1, bytes_per_step: 8 });
    render(
      <ExchangesSection placement={placement(recorded(program({ totals: [total(), within1], more: 7 })))} />,
    );
    expect(screen.getByRole("heading", { name: "What crosses between hosts, a step" })).toBeTruthy();
    const kinds = within(screen.getByRole("table", { name: /by kind/ })).getAllByRole("row");
    expect(kinds.map((row) => row.textContent)).toEqual([
      "ExchangeJoinsIn the programTimes a stepPayload a step",
      "all-reduce, meanhosts224.0 KiB",
      "permutewithin a host218 B",
    ]);
    const each = within(screen.getByRole("table", { name: /largest first/ })).getAllByRole("row");
    expect(each[1]?.textContent).toContain("dense/large");
    expect(screen.getByText("7 further exchanges, counted above, not listed.")).toBeTruthy();
    expect(screen.getByText(/Payload is what one replica puts in/)).toBeTruthy();
  });

  it("says in words why nothing is recorded, and no number", () => {
    for (const [why, says] of [
      ["no_step", "No step is dispatched yet."],
      ["jax", "Not recorded: the program computes with JAX’s own collectives"],
      ["not_told", "Not recorded for this attempt"],
    ] as const) {
      render(
        <ExchangesSection placement={placement({ programs: [], more_programs: 0, not_recorded: why })} />,
      );
      expect(screen.getByText(new RegExp(says)).textContent).not.toMatch(/\d/);
      cleanup();
    }
  });

  it("is of replicas on one host as well, and of one replica not at all", () => {
    const one = placement(recorded(program()), 1);
    render(<ExchangesSection placement={one} />);
    expect(screen.getByRole("heading", { name: "What replicas exchange, a step" })).toBeTruthy();
    cleanup();
    render(<ExchangesSection placement={{ ...one, devices: one.devices.slice(0, 1) }} />);
    expect(screen.queryByRole("heading")).toBeNull();
  });
});

describe("what crosses, in words", () => {
  it("is of the program with most of it", () => {
    const small = program({
      digest: "e",
      totals: [total({ kind: "all_gather", op: null, bytes_per_step: 8 })],
    });
    expect(crossingText(placement(recorded(small, program())))).toBe("all-reduce, up to 4.0 KiB a step");
    expect(crossingText(placement(recorded(program())))).toBe("all-reduce, 4.0 KiB a step");
  });

  it("says at least where a number depends on values, and nothing where nothing crosses", () => {
    const varying = program({ totals: [total({ varying: 1 })] });
    expect(crossingText(placement(recorded(varying)))).toBe("all-reduce, at least 4.0 KiB a step");
    const inside = placement(recorded(program({ totals: [total({ crosses_hosts: false })] })));
    expect([crossingText(inside), crossesHosts(inside)]).toEqual(["", false]);
    expect(crossesHosts(placement({ programs: [], more_programs: 0, not_recorded: "no_step" }))).toBeNull();
  });
});

describe("lines between hosts", () => {
  it("lead from each host to the next in the space between their outlines", () => {
    const layout = layOut(gang(6, 8), "host", 900);
    const lines = hostLinks(layout);

    expect(lines).toHaveLength(5);
    const inside = (x: number, y: number) =>
      layout.groups.some(
        (group) => x > group.x && x < group.x + group.width && y > group.y && y < group.y + group.height,
      );
    for (const line of lines) for (const [x, y] of line) expect(inside(x, y)).toBe(false);
  });

  it("join tiles of many hosts, and are none where devices are not drawn by host", () => {
    const many = gang(100, 8);
    const layout = layOut(many, "host", 1000);

    expect(layout.detail).toBe("hosts");
    expect(hostLinks(layout)).toHaveLength(99);
    expect(hostLinks(layOut(many, "replica", 1000))).toEqual([]);
  });
});
