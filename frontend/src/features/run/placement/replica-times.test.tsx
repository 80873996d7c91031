import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import type { ReplicaTimes as Times } from "@/api/schema";
import { replicaTimesQuery } from "../queries";
import { ReplicaTimes } from "./replica-times";

afterEach(cleanup);

const DEVICE = { host_name: "alpha", logical: 0, idle_ms: 1, waited_least: 0 };
const FOUND: Times = {
  run: "run_1",
  attempt: "att_1",
  unmeasured: null,
  steps: [10, 20, 30, 40, 50],
  span_ms: 40,
  slowest: {
    replica: 2,
    device: "dev_2",
    host_name: "alpha",
    gain_percent: 48.3,
    gain_ms: 19,
    waited_least: 5,
  },
  devices: [
    { ...DEVICE, device: "dev_2", replica: 2, computing_ms: 38, collective_ms: 1, waited_least: 5 },
    { ...DEVICE, device: "dev_0", replica: 0, computing_ms: 19, collective_ms: 20 },
  ],
  next: null,
};

function show(some: Partial<Times>) {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Number.POSITIVE_INFINITY } } });
  client.setQueryData(replicaTimesQuery("run_1", true).queryKey, { ...FOUND, ...some });
  render(
    <QueryClientProvider client={client}>
      <ReplicaTimes ended runId="run_1" />
    </QueryClientProvider>,
  );
}

it("marks the replica that the others wait for, and no other", () => {
  show({});
  expect(screen.getByText(/waited least in 5 of 5 steps: the others wait up to 48 %/)).toBeTruthy();
  const [, slow, punctual] = screen.getAllByRole("row");
  expect(slow?.textContent).toContain("the others wait for it");
  expect(punctual?.textContent).not.toContain("the others wait for it");
});

it("names nobody where none is slow", () => {
  show({ slowest: null });
  expect(screen.getByText(/No slow replica/)).toBeTruthy();
  expect(screen.queryByText("the others wait for it")).toBeNull();
});

it.each([
  ["not_traced", /no step is traced yet/],
  ["not_told", /tell no operations of devices/],
] as const)("says why nothing is measured: %s", (unmeasured, text) => {
  show({ unmeasured, devices: [], steps: [], slowest: null, span_ms: null });
  expect(screen.getByText(text)).toBeTruthy();
  expect(screen.queryByRole("table")).toBeNull();
});
