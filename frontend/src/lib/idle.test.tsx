import { act, render } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { firstIdle, useAtRest } from "./idle";

function Shown({ value }: { value: { text: string } }) {
  return <p>{useAtRest(value)?.text ?? "nothing"}</p>;
}

const pass = (ms: number) => act(() => vi.advanceTimersByTimeAsync(ms));
const move = () =>
  window.dispatchEvent(
    Object.defineProperty(new Event("pointermove"), "timeStamp", { value: performance.now() }),
  );

describe("useAtRest", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance", "requestIdleCallback"] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it("holds its value once the page is at rest", async () => {
    const { container } = render(<Shown value={{ text: "table" }} />);

    expect(container.textContent).toBe("nothing");
    await pass(1_000);
    expect(container.textContent).toBe("table");
  });

  it("waits for a pointer to rest, and in the end no longer", async () => {
    await pass(2_000);
    move();
    const { container } = render(<Shown value={{ text: "table" }} />);

    await pass(900);
    expect(container.textContent).toBe("nothing");
    await pass(1_500);
    expect(container.textContent).toBe("table");
    const value = { text: "of a pointer that never rests" };
    move();
    const other = render(<Shown value={value} />);
    for (let moves = 0; moves < 18; moves += 1) {
      await pass(500);
      move();
    }
    expect(other.container.textContent).toBe("nothing");
    await pass(3_000);
    expect(other.container.textContent).toBe(value.text);
  });

  it("lets a question go with the first idle moment, however the pointer moves", async () => {
    await pass(2_000);
    move();
    let went = false;
    void firstIdle().then(() => {
      went = true;
    });

    await pass(300);

    expect(went).toBe(true);
  });
});
