import { createMemoryHistory, createRootRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import type { Run } from "@/api/schema";
import { Particulars } from "./particulars";

function show(parameters: Run["parameters"], defaults: Run["parameters"]): Promise<HTMLElement> {
  const run = {
    id: "run_1",
    state: "RUNNING",
    owner: { name: "ada", id: null },
    created_at: "2026-01-02T03:04:05Z",
    strategy: "mirrored",
    labels: {},
    parameters,
    spec: { program: { entrypoint: "digits:main" }, defaults },
  };
  const root = createRootRoute({ component: () => <Particulars run={run as never} /> });
  const router = createRouter({ routeTree: root, history: createMemoryHistory() });
  render(<RouterProvider router={router as never} />);
  return screen.findByTestId("run-defaults");
}

const texts = (shown: HTMLElement | null) =>
  [...(shown?.children ?? [])].map(({ textContent }) => textContent);

describe("the parameters of a run", () => {
  afterEach(cleanup);

  it("are those given, and beside them what the program took by default", async () => {
    expect(texts(await show({ lr: 0.1 }, { lr: 0.2, steps: 10 }))).toEqual(["steps=10"]);
    expect(texts(screen.getByTestId("run-parameters"))).toEqual(["lr=0.1"]);
  });

  it("are defaults alone where none was given", async () => {
    expect(texts(await show({}, { lr: 0.2 }))).toEqual(["lr=0.2"]);
    expect(screen.queryByText("Parameters")).toBeNull();
  });

  it("of many defaults are the first, until all are wanted", async () => {
    const many = Object.fromEntries(Array.from({ length: 30 }, (_, at) => [`p${at}`, at]));
    const shown = await show({ p3: 1 }, many);
    expect(shown.querySelectorAll("code")).toHaveLength(8);
    fireEvent.click(screen.getByRole("button", { name: "21 more defaults" }));
    expect(shown.querySelectorAll("code")).toHaveLength(29);
    expect(screen.queryByRole("button")).toBeNull();
  });
});
