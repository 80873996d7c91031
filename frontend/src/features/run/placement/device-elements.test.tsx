import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { placedDevice, placementOn } from "../testing";
import { DeviceElements } from "./device-elements";
import { moveTo } from "./keyboard";
import { layOut } from "./layout";
import { paintsFor } from "./paint";

afterEach(cleanup);

function show(devices: number, planned = false) {
  const placement = placementOn(
    Array.from({ length: devices }, (_, i) => placedDevice({ index: i, replica: i })),
  );
  const layout = layOut(placement.devices, "host", 1000);
  const onFocus = vi.fn();
  render(
    <DeviceElements
      layout={layout}
      move={(from, key) => moveTo(layout, from, key)}
      onFocus={onFocus}
      paints={paintsFor({ placement, attempt: undefined, hosts: [], ended: false }, "replica")}
      placement={placement}
      planned={planned}
      selectedCell={-1}
    />,
  );
  return onFocus;
}

describe("DeviceElements", () => {
  it("shows 8 replicas on 8 different devices, each by name", () => {
    show(8);

    const elements = screen.getAllByTestId("placed-device");

    expect(new Set(elements.map((element) => element.dataset.device)).size).toBe(8);
    expect(elements.map((element) => element.dataset.replica)).toEqual([
      "0",
      "1",
      "2",
      "3",
      "4",
      "5",
      "6",
      "7",
    ]);
    expect(elements[3]?.getAttribute("aria-label")).toBe(
      "cpu:3 on host-a: replica 3, pending, simulated device",
    );
  });

  it("is one tab stop that the arrows move", () => {
    const onFocus = show(8);
    const elements = screen.getAllByTestId("placed-device");

    elements[0]?.focus();
    fireEvent.keyDown(elements[0] as HTMLElement, { key: "ArrowRight" });

    expect(document.activeElement).toBe(elements[1]);
    expect(onFocus).toHaveBeenLastCalledWith(1);
    expect(elements.filter((element) => element.tabIndex === 0)).toEqual([elements[1]]);
  });

  it("says that a planned device is not placed", () => {
    show(2, true);

    expect(screen.getAllByTestId("placed-device")[1]?.getAttribute("aria-label")).toBe(
      "Replica 1, not placed yet",
    );
  });
});
