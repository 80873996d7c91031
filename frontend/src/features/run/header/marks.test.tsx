import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { keys } from "@/api/queries";
import { Note, Star } from "./marks";

const RUN = { id: "run_a", note: "", starred: false };

describe("marks of a run", () => {
  const asked: unknown[] = [];
  const client = new QueryClient();
  beforeEach(() => {
    asked.length = 0;
    vi.stubGlobal("fetch", async (request: Request) => {
      const change = await request.json();
      asked.push([request.method, new URL(request.url).pathname, change]);
      return Response.json({ ...RUN, ...change });
    });
  });
  afterEach(cleanup);

  function show(some: Partial<typeof RUN> = {}) {
    render(
      <QueryClientProvider client={client}>
        <Star run={{ ...RUN, ...some }} />
        <Note run={{ ...RUN, ...some }} />
      </QueryClientProvider>,
    );
  }

  it("show a note as text, line by line, with characters that nobody sees as their codes", () => {
    show({ note: "too <b>slow</b>\nsee \u202eme" });

    const note = screen.getByTestId("run-note");
    expect([...note.children].map(({ textContent }) => textContent)).toEqual([
      "too <b>slow</b>",
      "see \\u202eme",
    ]);
    expect(note.querySelector("b")).toBeNull();
  });

  it.each([
    [false, "Star"],
    [true, "Unstar"],
  ])("turn the star round where it is %s", async (starred, name) => {
    show({ starred });

    fireEvent.click(screen.getByRole("button", { name }));

    await waitFor(() => expect(asked).toEqual([["PATCH", "/api/v1/runs/run_a", { starred: !starred }]]));
    await waitFor(() => expect(client.getQueryData(keys.run("run_a"))).toMatchObject({ starred: !starred }));
  });

  it("take a new note, and no longer one than the server keeps", async () => {
    show({ note: "old" });
    fireEvent.click(screen.getByRole("button", { name: "Edit the note" }));
    const field = screen.getByRole("textbox", { name: "Note" });

    fireEvent.change(field, { target: { value: "x".repeat(2_003) } });
    expect(screen.getByRole("alert").textContent).toContain("this one has 3 too many");
    expect(screen.getByRole<HTMLButtonElement>("button", { name: "Save" }).disabled).toBe(true);

    fireEvent.change(field, { target: { value: "new" } });
    fireEvent.click(screen.getByRole("button", { name: "Save" }));
    await waitFor(() => expect(asked).toEqual([["PATCH", "/api/v1/runs/run_a", { note: "new" }]]));
    expect(await screen.findByRole("button", { name: "Edit the note" })).toBeTruthy();
  });
});
