import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { useShortcut, watchKeyboard } from "./shortcuts";

function Keys({ keys, run }: { keys: string; run: () => void }) {
  useShortcut({ keys, meaning: keys, group: "View" }, run);
  return <input aria-label="field" />;
}

describe("shortcuts", () => {
  let stop: () => void;
  beforeEach(() => {
    stop = watchKeyboard();
  });
  afterEach(() => {
    stop();
    cleanup();
  });

  it("run on their key", () => {
    const run = vi.fn();
    render(<Keys keys="t" run={run} />);
    fireEvent.keyDown(document.body, { key: "t" });
    expect(run).toHaveBeenCalledTimes(1);
  });

  it("understand sequences", () => {
    const run = vi.fn();
    render(<Keys keys="g r" run={run} />);
    fireEvent.keyDown(document.body, { key: "r" });
    expect(run).not.toHaveBeenCalled();
    fireEvent.keyDown(document.body, { key: "g" });
    fireEvent.keyDown(document.body, { key: "r" });
    expect(run).toHaveBeenCalledTimes(1);
  });

  it("keep quiet while something is typed, unless a modifier is held", () => {
    const plain = vi.fn();
    const modified = vi.fn();
    render(
      <>
        <Keys keys="t" run={plain} />
        <Keys keys="mod+k" run={modified} />
      </>,
    );
    const [field] = screen.getAllByLabelText("field");
    if (!field) throw new Error("no field");
    fireEvent.keyDown(field, { key: "t" });
    fireEvent.keyDown(field, { key: "k", ctrlKey: true });
    expect(plain).not.toHaveBeenCalled();
    expect(modified).toHaveBeenCalledTimes(1);
  });

  it("are gone with their component", () => {
    const run = vi.fn();
    const { unmount } = render(<Keys keys="t" run={run} />);
    unmount();
    fireEvent.keyDown(document.body, { key: "t" });
    expect(run).not.toHaveBeenCalled();
  });
});
