import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { ApiError } from "@/api/errors";
import { EmptyState, ErrorState, StaleBanner } from "./view-states";

const error = new ApiError({
  status: 503,
  code: "unavailable",
  title: "Unavailable",
  detail: "The database does not answer.",
  hint: "Try again in a few seconds.",
  request_id: "req_9",
});

describe("view states", () => {
  afterEach(cleanup);

  it("an error says what, why, what to do, and under which request", () => {
    const retry = vi.fn();
    render(<ErrorState error={error} onRetry={retry} what="The runs could not be loaded" />);
    expect(screen.getByRole("alert").textContent).toContain("The runs could not be loaded");
    expect(screen.getByText("The database does not answer.")).toBeTruthy();
    expect(screen.getByText("Try again in a few seconds.")).toBeTruthy();
    expect(screen.getByText("request req_9")).toBeTruthy();
    fireEvent.click(screen.getByRole("button", { name: "Try again" }));
    expect(retry).toHaveBeenCalledTimes(1);
  });

  it("what is not there is not asked for again", () => {
    const missing = new ApiError({
      status: 404,
      code: "not_found",
      title: "Not found",
      detail: "There is no run.",
    });
    render(
      <ErrorState error={missing} onRetry={vi.fn()} what="The run could not be loaded">
        <a href="/runs">All runs</a>
      </ErrorState>,
    );
    expect(screen.queryByRole("button")).toBeNull();
    expect(screen.getByRole("link", { name: "All runs" })).toBeTruthy();
  });

  it("an empty list offers code to copy", () => {
    render(<EmptyState snippet="drumline up" title="No worker has registered." />);
    expect(screen.getByText("drumline up")).toBeTruthy();
    expect(screen.getByRole("button", { name: "Copy" })).toBeTruthy();
  });

  it("stale values say their age", () => {
    render(<StaleBanner error={error} since={Date.now() - 14_500} />);
    expect(screen.getByRole("status").textContent).toMatch(
      /Last known, 1[45] s ago\. The database does not answer\./,
    );
  });

  it("text of a program is a text node, whatever it holds", () => {
    const { container } = render(
      <ErrorState error={new Error("<img src=x onerror=alert(1)>")} what="Failed" />,
    );
    expect(container.querySelector("img")).toBeNull();
    expect(screen.getByText("<img src=x onerror=alert(1)>")).toBeTruthy();
  });
});
