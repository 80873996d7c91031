import { useRef, useState } from "react";
import type { PlacedDevice, Placement } from "@/api/schema";
import { stateWord } from "@/components/ui/state-badge";
import type { Cell, Layout } from "./layout";
import type { Paint } from "./paint";

/** Above this the table takes over: so many elements would slow the page and help nobody. */
const MOST_ELEMENTS = 1024;

interface DeviceElementsProps {
  placement: Placement;
  layout: Layout;
  paints: readonly Paint[];
  planned: boolean;
  selectedCell: number;
  move: (from: number, key: string) => number | null;
  onFocus: (cell: number) => void;
}

/** One button per device over the canvas: what keyboard, screen reader and tests meet. One tab stop, arrows inside. */
export function DeviceElements(props: DeviceElementsProps) {
  const { placement, layout, paints, planned, selectedCell, move, onFocus } = props;
  const layer = useRef<HTMLDivElement>(null);
  const [active, setActive] = useState(0);
  const stop = selectedCell >= 0 ? selectedCell : Math.min(active, layout.cells.length - 1);
  if (layout.detail === "hosts" || layout.cells.length > MOST_ELEMENTS) return null;
  const onKeyDown = (event: React.KeyboardEvent, from: number) => {
    const next = move(from, event.key);
    if (next === null) return;
    event.preventDefault();
    setActive(next);
    layer.current?.querySelector<HTMLElement>(`[data-cell="${next}"]`)?.focus();
  };
  return (
    <div className="absolute inset-0" ref={layer}>
      {layout.cells.map((cell, index) => {
        const device = placement.devices[cell.device];
        const paint = paints[cell.device];
        if (!device || !paint) return null;
        return (
          <button
            aria-label={nameOf(device, paint, planned)}
            aria-pressed={index === selectedCell}
            className="absolute rounded-control"
            data-cell={index}
            data-device={device.device}
            data-host={device.host}
            data-logical={device.logical ?? ""}
            data-planned={planned || undefined}
            data-replica={device.replica ?? ""}
            data-testid="placed-device"
            key={device.device}
            onBlur={() => onFocus(-1)}
            onFocus={() => onFocus(index)}
            onKeyDown={(event) => onKeyDown(event, index)}
            style={boxOf(cell)}
            tabIndex={index === stop ? 0 : -1}
            type="button"
          />
        );
      })}
    </div>
  );
}

function boxOf(cell: Cell) {
  return { left: cell.x + 4, top: cell.y + 4, width: cell.width, height: cell.height };
}

function nameOf(device: PlacedDevice, paint: Paint, planned: boolean): string {
  if (planned) return `Replica ${paint.title}, not placed yet`;
  const role = device.replica === null ? "holds variables only" : `replica ${paint.title}`;
  const where = `${paint.name} on ${device.host_name}`;
  return `${where}: ${role}, ${stateWord(paint.state).toLowerCase()}${device.simulated ? ", simulated device" : ""}`;
}
