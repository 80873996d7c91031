import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import {
  createMemoryHistory,
  createRootRoute,
  createRoute,
  createRouter,
  RouterProvider,
} from "@tanstack/react-router";
import { act, cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { RunsPage } from "./runs-page";
import { runsSearch } from "./search";

/** Beyond the whole numbers that a float has. */
const SEED = "1152921504606846977";
const RUN = {
  id: "run_a",
  job: "digits",
  version: 1,
  state: "SUCCEEDED",
  strategy: "mirrored",
  replicas: 2,
  owner: { kind: "session", id: "ses_a", name: "ann" },
  hosts: [],
  labels: {},
  progress: {},
  reason: null,
  note: "too slow",
  fields: { "params.seed": "the seed" },
  starred: true,
  created_at: "2026-01-01T00:00:00.000000Z",
  started_at: null,
  ended_at: null,
};

const UNREADABLE = {
  status: 422,
  code: "invalid_request",
  title: "Invalid request",
  detail: "The filter cannot be read.",
  errors: [{ field: "where", message: "a value is missing after >" }],
  context: { at: 4, length: 1, nearest: [] },
};

/** Answers like the server to `lr > 0`, `lr > 9`, of which nothing matches, and `lr >`, which is cut off. */
async function answer(request: Request): Promise<Response> {
  const { pathname, searchParams } = new URL(request.url);
  const where = searchParams.get("where") ?? "";
  if (/>\s*\)?$/.test(where)) return Response.json(UNREADABLE, { status: 422 });
  const items = where.includes("9") ? [] : [RUN];
  if (pathname.endsWith("runs:count")) return Response.json({ matching: items.length });
  if (pathname.endsWith("runs:groups"))
    return new Response(`{"items":[{"value":${SEED},"where":"params.seed = ${SEED}","runs":1}],"others":0}`);
  const page = JSON.stringify({ items: pathname.endsWith("/runs") ? items : [], next: null });
  return new Response(page.replace('"the seed"', SEED), { headers: { "Content-Type": "application/json" } });
}

describe("the list of runs", () => {
  let router: ReturnType<typeof open>;
  beforeEach(() => {
    vi.stubGlobal("fetch", answer);
    vi.stubGlobal(
      "EventSource",
      class extends EventTarget {
        close() {}
      },
    );
    router = open();
    const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
    render(
      <QueryClientProvider client={client}>
        <RouterProvider router={router as never} />
      </QueryClientProvider>,
    );
  });
  afterEach(cleanup);

  const go = (where: string) => act(() => router.navigate({ to: "/runs", search: { where } } as never));

  it("leaves no rows below a filter that cannot be read, nor boxes or counts of the one before", async () => {
    await go("lr > 0");
    expect(await screen.findByText("1 of 1 run shown")).toBeTruthy();

    await go("lr >");

    expect((await screen.findByRole("alert")).textContent).toContain("a value is missing after >");
    expect(screen.queryByRole("table")).toBeNull();
    expect(screen.queryByRole("checkbox")).toBeNull();
    expect(screen.queryByText(/shown/)).toBeNull();
  });

  it("does not say of a filter that cannot be read that it matches no run", async () => {
    await go("lr > 9");
    expect(await screen.findByText("No run matches this filter.")).toBeTruthy();

    await go("lr >");

    await screen.findByRole("alert");
    expect(screen.queryByText("No run matches this filter.")).toBeNull();
  });

  it("has what was noted of a run, and takes the star from runs that all have one", async () => {
    await go("lr > 0");
    expect((await screen.findByRole("cell", { name: "too slow" })).textContent).toBe("too slow");

    fireEvent.click(screen.getByRole("checkbox", { name: /run_a/ }));

    expect(await screen.findByRole("button", { name: "Unstar" })).toBeTruthy();
  });

  it("has notes once where they are a chosen column, and sorts by them", async () => {
    await act(() => router.navigate({ to: "/runs", search: { columns: "note", where: "lr > 0" } } as never));
    expect(await screen.findAllByRole("cell", { name: "too slow" })).toHaveLength(1);

    fireEvent.click(screen.getByRole("button", { name: /^Note/ }));

    await waitFor(() => expect(router.state.location.search).toMatchObject({ sort: "note" }));
  });

  it("shows whole numbers of users in all their digits: in columns and as names of groups", async () => {
    const chosen = { where: "lr > 0", columns: "params.seed" };
    await act(() => router.navigate({ to: "/runs", search: chosen } as never));
    expect((await screen.findByRole("cell", { name: "1152921504606846977" })).className).toContain("right");

    await act(() => router.navigate({ to: "/runs", search: { group: "params.seed" } } as never));

    expect(await screen.findByRole("button", { name: "1152921504606846977" })).toBeTruthy();
  });

  it("says what is wrong with the name of a view before it is saved", async () => {
    await go("lr > 0");
    fireEvent.click(await screen.findByRole("button", { name: "Views" }));
    fireEvent.click(await screen.findByRole("menuitem", { name: "Save this view" }));
    const field = await screen.findByRole("textbox", { name: "Name of the view" });

    fireEvent.change(field, { target: { value: "lr/sweep" } });

    expect(screen.getByText(/A name has no "\/"/)).toBeTruthy();
    expect(field.getAttribute("aria-invalid")).toBe("true");
    expect(screen.getByRole<HTMLButtonElement>("button", { name: "Save" }).disabled).toBe(true);
  });
});

function open() {
  const root = createRootRoute();
  const runs = createRoute({
    getParentRoute: () => root,
    path: "/runs",
    validateSearch: runsSearch,
    component: RunsPage,
  });
  const history = createMemoryHistory({ initialEntries: ["/runs"] });
  return createRouter({ routeTree: root.addChildren([runs]), history });
}
