import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { keys } from "@/api/queries";
import type { ChartView } from "@/components/metrics/chart-view";
import { keepView, LastView, lastView } from "./last-view";

const STORAGE_KEY = "drumline.chart-views.1";
const VIEW: ChartView = {
  pin: "train/loss,val/loss;lr",
  smooth: 0.6,
  y: "lr:0..2",
  from: 10,
  to: 20,
  at: 12,
};

describe("the last view of a job's charts", () => {
  const change = vi.fn();
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Number.POSITIVE_INFINITY } } });
  for (const [id, job] of [
    ["run_a", "digits"],
    ["run_b", "digits"],
    ["run_c", "other"],
  ])
    client.setQueryData(keys.run(id as string), { id, job });
  beforeEach(() => {
    localStorage.clear();
    change.mockReset();
  });
  afterEach(cleanup);

  function show(runId: string, view: ChartView = {}) {
    cleanup();
    render(
      <QueryClientProvider client={client}>
        <LastView change={change} runId={runId} view={view} />
      </QueryClientProvider>,
    );
    return screen.queryByRole("button", { name: "Last view" });
  }

  it("is offered to the next run of the job that has none of its own, without the place that was zoomed to", () => {
    expect(show("run_a", VIEW)).toBeNull();
    expect(show("run_c")).toBeNull();
    const button = show("run_b") as HTMLElement;
    expect(button.title).toBe(
      "As charts of digits were last shown here: 2 charts pinned, limits of 1 chart, smoothing 0.6",
    );

    fireEvent.click(button);

    expect(change).toHaveBeenCalledTimes(1);
    expect(change.mock.calls[0]?.[0]).toEqual({ pin: VIEW.pin, smooth: 0.6, y: VIEW.y });
  });

  it.each([
    "[",
    "7",
    '[["digits"]]',
    '[["digits", 7]]',
    '[["digits", {"pin": [], "smooth": "x", "y": [], "x": "%"}]]',
  ])("is none where the browser keeps %s", (text) => {
    localStorage.setItem(STORAGE_KEY, text);

    expect(show("run_b")).toBeNull();
  });

  it("is kept of the 50 jobs that were shown last", () => {
    for (let place = 0; place < 51; place += 1) {
      keepView(`job-${place}`, { smooth: 0.5 });
      keepView("job-0", { smooth: 0.5 });
    }

    expect([lastView("job-0"), lastView("job-1"), lastView("job-2")].map(Boolean)).toEqual([
      true,
      false,
      true,
    ]);
  });

  it("is not kept where it is longer than any that a person makes", () => {
    keepView("digits", { pin: "x".repeat(5_000) });

    expect(lastView("digits")).toBeNull();
  });
});
