import { createMemoryHistory, createRootRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { OutcomeTable } from "./outcome-table";

afterEach(cleanup);

it("a value that a run was not given is marked as its program's default; an older server tells none", async () => {
  const row = { index: 0, state: "SUCCEEDED", reason: null, metrics: {}, duration_s: null };
  const parameters = { lr: 0.2, steps: 10 };
  const outcomes = {
    parameters: ["lr", "steps"],
    metrics: [],
    items: [
      { ...row, run: "run_1", parameters, given: ["steps"] },
      { ...row, run: "run_2", parameters },
      { ...row, run: "run_3", parameters, given: null },
    ],
  };
  const root = createRootRoute({
    component: () => <OutcomeTable outcomes={outcomes as never} sort="index" />,
  });
  const router = createRouter({ routeTree: root, history: createMemoryHistory() });
  render(<RouterProvider router={router as never} />);
  const rows = (await screen.findAllByRole("row")).slice(1);
  expect(
    rows.map((each) => [...each.querySelectorAll("td")].slice(2, 4).map((cell) => cell.textContent)),
  ).toEqual([
    ["default0.2", "10"],
    ["0.2", "10"],
    ["0.2", "10"],
  ]);
});
