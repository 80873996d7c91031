import { useEffect, useMemo, useRef, useState } from "react";
import type { Placement } from "@/api/schema";
import { fitCanvas } from "@/components/charts/canvas";
import { useTheme } from "@/components/charts/use-theme";
import { DeviceCard } from "./device-card";
import { DeviceElements } from "./device-elements";
import { drawCells, drawGroups, drawLinks, drawMarks, mapColors } from "./draw";
import { drawHostLinks } from "./draw-hosts";
import { drawBus, drawRing } from "./draw-rails";
import { crossesHosts, crossingText } from "./exchanges";
import { HitGrid } from "./hit-grid";
import { drawHostBars, drawHostTiles } from "./host-tiles";
import { moveTo } from "./keyboard";
import type { Layout } from "./layout";
import type { Paint } from "./paint";
import type { Storage } from "./storage";

export interface DeviceMapProps {
  placement: Placement;
  layout: Layout;
  paints: readonly Paint[];
  storage: Storage | null;
  planned: boolean;
  /** Id of the selected device. */
  selected: string | undefined;
  onSelect: (device: string | undefined) => void;
}

/** The map: drawn on a canvas, pointed at through a hit grid, and read by assistive technology as one button per device. */
export function DeviceMap(props: DeviceMapProps) {
  const { placement, layout, paints, storage, planned, selected, onSelect } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  /** Marks, or the bars of hosts, which have no marks: the map under it is drawn once. */
  const over = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  const scroller = useRef<HTMLDivElement>(null);
  const [hovered, setHovered] = useState(-1);
  const [room, setRoom] = useState({ width: 0, scrolled: 0 });
  const grid = useMemo(() => new HitGrid(layout.cells, layout.cellSize + layout.gap), [layout]);
  const cellOf = (device: string | undefined) =>
    layout.cells.findIndex((cell) => placement.devices[cell.device]?.device === device);
  const selectedCell = selected === undefined ? -1 : cellOf(selected);
  const isOfHosts = layout.detail === "hosts";
  const [width, height] = [layout.width + 8, layout.height + 8];

  // biome-ignore lint/correctness/useExhaustiveDependencies: the theme is read through its tokens
  useEffect(() => {
    const context = canvas.current && fitCanvas(canvas.current, width, height);
    if (!context) return;
    const colors = mapColors();
    context.translate(4, 4);
    drawGroups(context, layout, colors);
    const crosses = crossesHosts(placement);
    if (crosses && layout.rails === "none" && !planned)
      drawHostLinks(context, layout, crossingText(placement), colors);
    if (isOfHosts) return drawHostTiles(context, layout, colors);
    if (layout.rails === "ring" && !planned) drawRing(context, layout, colors, crosses ?? true);
    if (layout.rails === "bus" && storage) drawBus(context, layout, storage, colors);
    drawLinks(context, layout, colors);
    drawCells(context, layout, placement.devices, paints, planned);
  }, [layout, isOfHosts || paints, placement, storage, planned, theme, width, height]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the theme is read through its tokens
  useEffect(() => {
    const context = !isOfHosts && over.current && fitCanvas(over.current, width, height);
    if (!context) return;
    context.translate(4, 4);
    drawMarks(context, layout, { selected: selectedCell, hovered });
  }, [layout, selectedCell, hovered, theme, width, height]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the theme is read through its tokens
  useEffect(() => {
    const context = isOfHosts && over.current && fitCanvas(over.current, width, height);
    if (!context) return;
    context.translate(4, 4);
    drawHostBars(context, layout, paints, mapColors());
  }, [layout, isOfHosts, paints, theme, width, height]);

  const cellAt = (event: React.MouseEvent<HTMLElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    return grid.at(event.clientX - box.left - 4, event.clientY - box.top - 4);
  };
  const select = (cell: number) => {
    // A tile stands for a whole host: there is no one device to select.
    if (layout.detail === "hosts") return;
    const device = placement.devices[layout.cells[cell]?.device ?? -1]?.device;
    onSelect(device === selected ? undefined : device);
  };
  const onClick = (event: React.MouseEvent<HTMLElement>) => {
    // A press of Enter on a device's own element has no position: the element says which one it is.
    const element =
      event.target instanceof Element ? event.target.closest<HTMLElement>("[data-device]") : null;
    select(element ? cellOf(element.dataset.device) : cellAt(event));
  };
  const hover = (cell: number) => {
    const box = scroller.current;
    if (box && cell >= 0) setRoom({ width: box.clientWidth, scrolled: box.scrollLeft });
    setHovered(cell);
  };
  const shown = hovered >= 0 ? layout.cells[hovered] : undefined;

  return (
    <div className="relative -m-1" data-testid="placement-map">
      <div className="overflow-x-auto overflow-y-hidden" ref={scroller}>
        {/* biome-ignore lint/a11y/useKeyWithClickEvents: keys reach the buttons inside, which are the same devices */}
        <fieldset
          aria-label={`Map of ${placement.devices.length} devices`}
          className="relative"
          onClick={onClick}
          onPointerLeave={() => hover(-1)}
          onPointerMove={(event) => hover(cellAt(event))}
          style={{ width, height }}
        >
          {/* biome-ignore lint/a11y/noAriaHiddenOnFocusable: a canvas takes no focus; the buttons over it do */}
          <canvas aria-hidden="true" className="absolute inset-0" ref={canvas} style={{ width, height }} />
          {/* biome-ignore lint/a11y/noAriaHiddenOnFocusable: as above */}
          <canvas aria-hidden="true" className="absolute inset-0" ref={over} style={{ width, height }} />
          <DeviceElements
            layout={layout}
            move={(from, key) => moveTo(layout, from, key)}
            onFocus={hover}
            paints={paints}
            placement={placement}
            planned={planned}
            selectedCell={selectedCell}
          />
        </fieldset>
      </div>
      {shown && !planned && (
        <DeviceCard cell={shown} paint={paints[shown.device]} placement={placement} room={room} />
      )}
    </div>
  );
}
