import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import { type Draft, EMPTY_DRAFT } from "./draft";
import type { HostFit } from "./fit";
import { Needs } from "./needs";
import { shapeOf } from "./shape";

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
