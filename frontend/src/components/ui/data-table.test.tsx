import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { watchKeyboard } from "@/lib/shortcuts";
import { type Column, DataTable } from "./data-table";

interface Row {
  id: string;
  name: string;
}

const COLUMNS: Column<Row>[] = [
  { id: "name", header: "Name", cell: (row) => <a href={`#${row.id}`}>{row.name}</a> },
  { id: "id", header: "Id", cell: (row) => row.id, align: "right" },
];
const rowsOf = (n: number): Row[] =>
  Array.from({ length: n }, (_, at) => ({ id: `r${at}`, name: `row ${at}` }));

function show(rows: Row[], onRowClick?: (row: Row) => void) {
  render(
    <DataTable
      columns={COLUMNS}
      keyboard
      label="Things"
      rowKey={(row) => row.id}
      rows={rows}
      {...(onRowClick && { onRowClick })}
    />,
  );
}

/** As long as a busy machine may need for a frame, and no longer than until the row is there. */
const WAIT = { timeout: 15_000 };

describe("DataTable", () => {
  let stop: () => void;
  beforeEach(() => {
    stop = watchKeyboard();
  });
  afterEach(() => {
    stop();
    cleanup();
  });

  it("is a named table with a row for each thing", () => {
    show(rowsOf(3));
    expect(screen.getByRole("table", { name: "Things" })).toBeTruthy();
    expect(screen.getAllByRole("row")).toHaveLength(4);
    expect(screen.getAllByRole("columnheader").map((cell) => cell.textContent)).toEqual(["Name", "Id"]);
  });

  it("moves the focus over rows with j and k and stops at the ends", () => {
    show(rowsOf(3));
    const press = (key: string) => fireEvent.keyDown(document.activeElement ?? document.body, { key });
    for (const key of ["j", "j", "j", "j", "k"]) press(key);
    expect(document.activeElement?.textContent).toBe("row 1");
  });

  it("leaves the keys to the table that asked for them", () => {
    show(rowsOf(3));
    render(
      <DataTable
        columns={COLUMNS}
        label="Others"
        rowKey={(row) => row.id}
        rows={[{ id: "o", name: "other" }]}
      />,
    );
    fireEvent.keyDown(document.body, { key: "j" });
    expect(document.activeElement?.textContent).toBe("row 0");
  });

  it("opens a row by a click beside its link, and not twice by the link", () => {
    const open = vi.fn();
    show(rowsOf(2), open);
    fireEvent.click(screen.getByText("r1"));
    fireEvent.click(screen.getByText("row 0"));
    expect(open.mock.calls.map(([row]) => row.id)).toEqual(["r1"]);
  });

  it("keeps most rows of a long list out of the document but says how many there are", () => {
    show(rowsOf(5_000));
    expect(screen.getByRole("table").getAttribute("aria-rowcount")).toBe("5001");
    expect(screen.getAllByRole("row").length).toBeLessThan(200);
  });

  it("draws the rows of a long list to which one scrolls, and keeps the list as high as it is", {
    timeout: 20_000,
  }, async () => {
    show(rowsOf(5_000));
    vi.spyOn(window, "scrollY", "get").mockReturnValue(100_000);
    await vi.waitFor(() => {
      fireEvent.scroll(window);
      expect(screen.getByText("row 3125")).toBeTruthy();
    }, WAIT);
    expect(screen.queryByText("row 0")).toBeNull();
    const rows = screen.getAllByRole("row").slice(1);
    const spacers = [...document.querySelectorAll<HTMLElement>("tr[aria-hidden] td")];
    const height = spacers.reduce((sum, cell) => sum + Number.parseInt(cell.style.height, 10), 0);
    expect(height + rows.length * 32).toBe(5_000 * 32);
  });
});
