import { createMemoryHistory, createRootRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { FirstNonFinite } from "./first-non-finite";

afterEach(cleanup);

it("the first value that is not finite leads to its reduction at the step where it is", async () => {
  const first = { step: 7, op: "sum", name: "loss", attempt: "att_1", replicas: [], replicas_in_all: 0 };
  const root = createRootRoute({
    component: () => <FirstNonFinite run={{ id: "run_1", first_non_finite: first as never }} />,
  });
  const router = createRouter({ routeTree: root, history: createMemoryHistory() });
  render(<RouterProvider router={router as never} />);

  const link = await screen.findByRole("link", { name: "Reductions of it" });
  expect(new URL(link.getAttribute("href") ?? "", "http://x").searchParams.get("near")).toBe("7");
});
