import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { ProgramPane } from "./program-pane";

const KEPT = { kind: "kept", kept: { bundle: "sha256:00", job: "night-digits", version: 3 } } as const;

function show(part: { files?: number; error?: unknown } = {}) {
  const called = { onDrop: vi.fn(), onFile: vi.fn() };
  const idle = { onSource: vi.fn(), onRetry: vi.fn(), onSubmit: vi.fn() };
  render(
    <ProgramPane error={null} files={undefined} program={KEPT} sent={null} {...idle} {...called} {...part} />,
  );
  return called;
}

describe("a program that is kept", () => {
  afterEach(cleanup);

  it("is named by its job, version and files once the server has answered", () => {
    show({ files: 2 });
    expect(screen.getByText(/^Program of/).textContent).toBe(
      "Program of night-digits version 3, 2 files, unchanged",
    );
  });

  it("tells no number of files before", () => {
    show();
    expect(screen.getByText(/^Program of/).textContent).toBe("Program of night-digits version 3, unchanged");
  });

  it("gives way to a file that is dropped on it, and to code", () => {
    const { onDrop, onFile } = show({ files: 2 });
    const file = new File(["PK"], "new.zip");
    fireEvent.drop(screen.getByText(/^Program of/), { dataTransfer: { files: [file] } });
    expect(onFile).toHaveBeenCalledWith(file);
    fireEvent.click(screen.getByRole("button", { name: "Write code instead" }));
    expect(onDrop).toHaveBeenCalledOnce();
  });

  it("says that it could not be looked up", () => {
    show({ error: new Error("no answer") });
    expect(screen.getByRole("alert").textContent).toContain("The program could not be checked");
  });
});

it("says how much of a large zip is there while it is sent", () => {
  const idle = { onSource: vi.fn(), onRetry: vi.fn(), onSubmit: vi.fn(), onDrop: vi.fn(), onFile: vi.fn() };
  const program = { kind: "zip", file: new File(["PK"], "big.zip") } as const;
  render(
    <ProgramPane
      error={null}
      files={undefined}
      program={program}
      sent={{ received: 2 ** 21, size: 2 ** 22 }}
      {...idle}
    />,
  );
  expect(screen.getByRole("progressbar").textContent).toBe("2.0 MiB of 4.0 MiB sent");
  cleanup();
});
