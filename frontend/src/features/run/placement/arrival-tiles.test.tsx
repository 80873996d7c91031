import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import { keys } from "@/api/queries";
import type { Arrivals, ArrivalTimes, Straggler } from "@/api/schema";
import { stragglerText } from "../header/straggler";
import { arrivalsQuery } from "../queries";
import { ArrivalTiles } from "./arrival-tiles";
import { partsOf } from "./arrival-times";

afterEach(cleanup);

const LATE: ArrivalTimes = {
  arrival_ms: 61,
  input_ms: 1,
  own_code_ms: 59.75,
  dispatch_ms: 0.25,
  wait_ms: 0,
  devices_ms: 39,
};
const PUNCTUAL: ArrivalTimes = { ...LATE, arrival_ms: 5, own_code_ms: 3.75, wait_ms: 56 };
const STRAGGLER: Straggler = {
  rank: 1,
  host_name: "beta",
  gain_percent: 55.6,
  gain_ms: 56,
  step_ms: 100,
  error_ms: 2,
  arrived_last: 30,
  compared: 32,
};

function show(some: Partial<Arrivals>, straggler: Straggler | null) {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Number.POSITIVE_INFINITY } } });
  const member = { host: "hst_a", latest: null };
  const found: Arrivals = {
    run: "run_1",
    attempt: "att_1",
    executor: "spmd",
    unmeasured: null,
    compared: 32,
    call: 40,
    calls: [10, 20, 40],
    step_ms: 100,
    error_ms: 2,
    straggler,
    members: [
      { ...member, rank: 0, host_name: "alpha", arrived_last: 2, median: PUNCTUAL },
      { ...member, rank: 1, host_name: "beta", arrived_last: 30, median: LATE },
    ],
    next: null,
    ...some,
  };
  client.setQueryData(arrivalsQuery("run_1").queryKey, found);
  client.setQueryData(arrivalsQuery("run_1", 20).queryKey, { ...found, call: 20, straggler: null });
  client.setQueryData(keys.run("run_1"), { id: "run_1", progress: { straggler } });
  render(
    <QueryClientProvider client={client}>
      <ArrivalTiles ended={false} runId="run_1" />
    </QueryClientProvider>,
  );
  return screen.getAllByTestId("arrival");
}

describe("ArrivalTiles", () => {
  it("shows an earlier step with who came last then, and goes back to now", () => {
    show({}, STRAGGLER);
    const slider = screen.getByRole("slider", { name: "Steps" });
    expect(slider.getAttribute("aria-valuetext")).toBe("now");

    fireEvent.change(slider, { target: { value: "1" } });
    expect(slider.getAttribute("aria-valuetext")).toBe("up to call 20");
    expect(screen.queryByText(/straggler: comes last/)).toBeNull();
    expect(screen.getByText(/No straggler: nobody came last/)).toBeTruthy();

    fireEvent.change(slider, { target: { value: "2" } });
    expect(slider.getAttribute("aria-valuetext")).toBe("now");
    expect(screen.getByText(/straggler: comes last/)).toBeTruthy();
  });

  it("marks in words who comes last, and never who waits", () => {
    const [punctual, late] = show({}, STRAGGLER);

    expect(late?.textContent).toContain("straggler: comes last");
    expect(punctual?.textContent).not.toContain("straggler");
    expect(within(punctual as HTMLElement).getByText("56 ms")).toBeTruthy();
    expect(
      within(late as HTMLElement).getByRole("img", {
        name: "A step: input 1 ms, own code 59.8 ms, dispatch 0.25 ms, devices 39 ms",
      }),
    ).toBeTruthy();
  });

  it("says that there is no straggler where nobody costs enough", () => {
    show({}, null);

    expect(screen.getByText(/^No straggler/)).toBeTruthy();
  });

  it("shows no number where none is measured", () => {
    const members = [
      { rank: 0, host: "hst_a", host_name: "alpha", arrived_last: 0, latest: null, median: null },
    ];
    const [tile] = show({ unmeasured: "executor", executor: "pmap", compared: 0, members }, null);

    expect(tile?.textContent).toBe("alpharank 0not measured for this executor: pmap");
  });
});

it("tells the parts of a step in the order in which they happen", () => {
  expect(partsOf(LATE).map(({ name, ms }) => [name, ms])).toEqual([
    ["input", 1],
    ["own code", 59.75],
    ["dispatch", 0.25],
    ["wait", 0],
    ["devices", 39],
  ]);
  expect(stragglerText(STRAGGLER, false)).toBe(
    "beta (rank 1) comes last to the collectives: the others wait up to 56 % of a step for it.",
  );
});
