import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import type { MemberUsage } from "@/api/schema";
import { formatBytes } from "@/lib/format";
import { usageQuery } from "../queries";
import { Usage } from "./usage";

afterEach(cleanup);

const MEMBER: MemberUsage = {
  rank: 0,
  host: "hst_1",
  host_name: "alpha",
  host_processors: 8,
  host_memory_bytes: 16e9,
  step: 30,
  at: "2026-11-26T20:00:00Z",
  usage: { processor_percent: 250, memory_bytes: 4e9, processes: 3, devices: [] },
};

function show(members: MemberUsage[], past: Record<number, MemberUsage[]> = {}) {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Number.POSITIVE_INFINITY } } });
  client.setQueryData(usageQuery("run_1", true).queryKey, { items: members, next: null });
  for (const [step, then] of Object.entries(past)) {
    client.setQueryData(usageQuery("run_1", true, Number(step)).queryKey, { items: then, next: null });
  }
  render(
    <QueryClientProvider client={client}>
      <Usage ended runId="run_1" />
    </QueryClientProvider>,
  );
}

function rowText(): string {
  return screen.getByRole("row", { name: /alpha/ }).textContent ?? "";
}

it("shows what each member uses of its host, and says where memory of devices is not counted", () => {
  show([MEMBER]);
  expect(rowText()).toContain("2.5 of 8");
  expect(rowText()).toContain("not counted on this platform");
});

it("shows the fullest of several devices", () => {
  const devices = [
    { device: "dev_1", used_bytes: 2e9, limit_bytes: 8e9 },
    { device: "dev_2", used_bytes: 6e9, limit_bytes: 8e9 },
  ];
  show([{ ...MEMBER, usage: { processor_percent: 0, memory_bytes: 1, processes: 1, devices } }]);
  expect(rowText()).toContain(`${formatBytes(6e9)} of ${formatBytes(8e9)}, fullest of 2`);
});

it("says of a member that told nothing that it did not", () => {
  show([{ ...MEMBER, usage: null, at: null }]);
  expect(rowText()).toContain("nothing was told");
});

it("goes back to an earlier step, and to now", () => {
  const then = {
    ...MEMBER,
    step: 10,
    usage: { processor_percent: 75, memory_bytes: 4e9, processes: 3, devices: [] },
  };
  show([MEMBER], { 10: [then] });
  fireEvent.change(screen.getByRole("slider"), { target: { value: "10" } });
  expect(screen.getByText("as of step 10")).toBeTruthy();
  expect(rowText()).toContain("0.75 of 8");
  fireEvent.change(screen.getByRole("slider"), { target: { value: "30" } });
  expect(rowText()).toContain("2.5 of 8");
});

it("has a slider of at most 200 places, however long the run", () => {
  show([{ ...MEMBER, step: 1_000_001 }], { 5001: [{ ...MEMBER, step: 4_990 }] });
  const slider = screen.getByRole("slider") as HTMLInputElement;
  expect(Number(slider.max)).toBeLessThanOrEqual(200);
  fireEvent.change(slider, { target: { value: "1" } });
  expect(screen.getByText("as of step 5,001")).toBeTruthy();
});
