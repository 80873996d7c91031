import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import { type Draft, EMPTY_DRAFT } from "./draft";
import type { HostFit } from "./fit";
import { Forecast, Needs } from "./needs";
import { shapeOf } from "./shape";
import { StrategyFields } from "./strategy-fields";

const BOX: HostFit = {
  host: "hst_1",
  members: ["hst_1"],
  name: "box",
  platform: "cpu",
  simulated: false,
  free: 3,
  usable: 3,
  total: 8,
  outOfService: null,
  store: "",
};

function show(draft: Partial<Draft>, hosts: HostFit[] = [BOX]) {
  const fit = { verdict: "waits" as const, sentence: "It will wait.", hosts };
  render(<Needs fit={fit} shape={shapeOf({ ...EMPTY_DRAFT, ...draft })} />);
}

describe("what a run needs", () => {
  afterEach(cleanup);

  it.each([
    [{}, /else they are split over several/],
    [{ executor: "pmap" }, /All replicas share one host, as the executor PMAP needs/],
    [{ strategy: "tpu" }, /split over several of one slice/],
    [{ spread: "one_host" }, /All replicas share one host, as the spread needs/],
    [{ executor: "mpmd" }, /All replicas share one host, as the executor MPMD needs/],
    [{ strategy: "central_storage" }, /as the strategy central_storage needs/],
  ] as const)("says over how many hosts with %j", (draft, said) => {
    show(draft);
    expect(screen.getByText(said)).toBeTruthy();
  });

  it("names the platform where hosts have several, and why one takes no runs", () => {
    show({}, [
      BOX,
      { ...BOX, host: "hst_2", name: "rack", platform: "gpu", free: 0, outOfService: "draining" },
    ]);
    expect(screen.getByRole("row", { name: "box, CPU 3 of 8 free" })).toBeTruthy();
    expect(screen.getByRole("row", { name: "rack, GPU draining" })).toBeTruthy();
  });
});

describe("fields that say what a run needs", () => {
  afterEach(cleanup);

  function showFields(part: Partial<Draft>) {
    const draft = { ...EMPTY_DRAFT, ...part };
    const fit = { verdict: "now" as const, sentence: "It can start at once.", hosts: [BOX] };
    render(
      <>
        <StrategyFields change={() => {}} draft={draft} errorOf={() => undefined} />
        <Forecast draft={draft} fit={fit} fleetError={null} shape={shapeOf(draft)} />
      </>,
    );
  }

  it.each([
    [{ replicas: "-3" }, "Replicas", "must be a number of at least 1"],
    [{ replicas: "0" }, "Replicas", "must be a number of at least 1"],
    [{ replicas: "many" }, "Replicas", "must be a number of at least 1"],
    [{ replicas: "2.5" }, "Replicas", "must be a whole number"],
    [
      { strategy: "tpu", computationShape: "2, x, 1, 1" },
      "Computation shape",
      "must be four numbers of at least 1: x, y, z, core",
    ],
  ] as const)("are marked while they are typed, and no forecast is made, with %j", (part, label, words) => {
    showFields(part);

    const field = screen.getByRole("textbox", { name: label });
    expect(field.getAttribute("aria-invalid")).toBe("true");
    expect(screen.getByText(words)).toBeTruthy();
    expect(screen.queryByText("It can start at once.")).toBeNull();
    expect(screen.getByRole("status").textContent).toContain("once the marked fields");
  });

  it("are left unmarked beside the forecast where they are right", () => {
    showFields({ replicas: "3" });

    expect(screen.getByRole("textbox", { name: "Replicas" }).getAttribute("aria-invalid")).toBeNull();
    expect(screen.getByText("It can start at once.")).toBeTruthy();
  });
});
