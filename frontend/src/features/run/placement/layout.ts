import type { PlacedDevice } from "@/api/schema";
import { count } from "@/lib/format";
import {
  type GroupPlan,
  groupByHost,
  type HostGroup,
  hasCoordinates,
  type LayoutKind,
  plansFor,
  type Slot,
  slot,
} from "./groups";

/** How much is drawn per device: `large` with text, `cells` as squares, `hosts` as one tile per host. */
type Detail = "large" | "cells" | "hosts";

/** One device (or, at detail `hosts`, one host) as a rectangle in CSS pixels. */
export interface Cell {
  /** Index into the placement's devices; at detail `hosts` the first device of the host. */
  device: number;
  x: number;
  y: number;
  width: number;
  height: number;
  /** Which group of the layout it belongs to. */
  group: number;
  /** Column and row inside the group, for rails and keyboard. */
  column: number;
  row: number;
  /** Devices that this cell stands for. */
  stands: number;
}

/** A labelled set of cells: a host, a z-slice, or all replicas. */
interface Group {
  label: string;
  note: string;
  x: number;
  y: number;
  width: number;
  height: number;
  rows: number;
  columns: number;
  origin?: [number, number] | undefined;
}

/** Which lines of the strategy are drawn: a ring under each row, or a bus over it that leads to a dock. */
export type Rails = "ring" | "bus" | "none";

export interface Layout {
  kind: LayoutKind;
  detail: Detail;
  cells: Cell[];
  /** At detail `hosts` what each cell stands for. */
  hosts: readonly HostGroup[];
  groups: Group[];
  width: number;
  height: number;
  cellSize: number;
  gap: number;
  rails: Rails;
  /** Where the storage stands that all replicas share. */
  dock: { x: number; y: number; width: number; height: number } | null;
}

const MAX_LARGE = 64;
const MAX_CELLS = 10_000;
/** Space above a group's cells for its label. */
const LABEL_HEIGHT = 28;
/** Inner margin between a group's outline and its cells. */
export const PADDING = 12;
/** Space beside each row of cells for the strategy's lines. */
export const RAIL = 20;
export const GROUP_GAP = 24;
/** Left of a host's outline and label, where lines between hosts are drawn. */
export const BESIDE = 3;
/** Group of the cells in the dock. */
export const DOCKED = -1;
const DOCK = { x: 0, y: 0, width: 216, height: 52 };
const BELOW_DOCK = 20;

export function detailFor(devices: number): Detail {
  if (devices <= MAX_LARGE) return "large";
  return devices <= MAX_CELLS ? "cells" : "hosts";
}

/** Places devices for a page `width` pixels wide. A torus without coordinates falls back to hosts; rails need large cells. */
export function layOut(
  devices: readonly PlacedDevice[],
  wanted: LayoutKind,
  width: number,
  rails: Rails = "none",
): Layout {
  const detail = detailFor(devices.length);
  const kind = wanted === "torus" && !hasCoordinates(devices) ? "host" : wanted;
  const crowded = kind === "host" && detail === "cells" && groupByHost(devices).length > MOST_HOSTS;
  if (detail === "hosts" || crowded) return layOutHosts(devices, width);
  const drawn = railsDrawn(rails, devices.length);
  const parked = devices.flatMap((device, index) =>
    drawn === "bus" && device.replica === null ? [index] : [],
  );
  const plans = plansWithout(devices, kind, parked, fittingCells(devices.length, width));
  const { size, gap } = cellSizeFor(devices.length, plans, width);
  const layout = arrange(plans, { kind, detail, width, size, gap, rails: drawn });
  const { dock } = layout;
  if (dock)
    for (const device of parked)
      layout.cells.push({ ...dock, device, group: DOCKED, column: 0, row: 0, stands: 1 });
  return layout;
}

/** A ring around many devices is a tangle that says nothing. */
const MOST_ON_A_RING = 16;

function railsDrawn(rails: Rails, devices: number): Rails {
  if (rails === "ring") return devices <= MOST_ON_A_RING ? rails : "none";
  return devices <= MAX_LARGE ? rails : "none";
}

/** More hosts than this are tiles: their outlines and labels would take more room than their devices. */
const MOST_HOSTS = 64;

/** The groups of all devices but those that stand in the dock. */
function plansWithout(
  devices: readonly PlacedDevice[],
  kind: LayoutKind,
  parked: readonly number[],
  fitting: number,
): GroupPlan[] {
  const kept = devices.map((_, index) => index).filter((index) => !parked.includes(index));
  const plans = plansFor(
    kept.flatMap((index) => devices[index] ?? []),
    kind,
    fitting,
  );
  const original = (place: Slot): Slot => ({ ...place, device: kept[place.device] ?? 0 });
  return plans.map((plan) => ({ ...plan, slots: plan.slots.map(original) }));
}

/** Cell sizes and gaps by the number of devices. */
const SIZES = [
  { upTo: 16, most: 88, least: 44, gap: 12 },
  { upTo: MAX_LARGE, most: 52, least: 44, gap: 6 },
  { upTo: 1_024, most: 28, least: 8, gap: 2 },
  { upTo: Number.POSITIVE_INFINITY, most: 12, least: 5, gap: 1 },
];

/** How many cells of the smallest size stand side by side. */
function fittingCells(devices: number, width: number): number {
  const { least = 5, gap = 1 } = SIZES.find(({ upTo }) => devices <= upTo) ?? {};
  return Math.max(1, Math.floor((width - 2 * PADDING + gap) / (least + gap)));
}

function cellSizeFor(
  devices: number,
  plans: readonly GroupPlan[],
  width: number,
): { size: number; gap: number } {
  const { most = 12, least = 5, gap = 1 } = SIZES.find(({ upTo }) => devices <= upTo) ?? {};
  const columns = Math.max(1, ...plans.map((plan) => plan.columns));
  const room = (width - 2 * PADDING - (columns - 1) * gap) / columns;
  return { size: Math.max(least, Math.min(most, Math.floor(room))), gap };
}

interface Frame {
  kind: LayoutKind;
  detail: Detail;
  width: number;
  size: number;
  gap: number;
  rails: Rails;
}

function arrange(plans: readonly GroupPlan[], frame: Frame): Layout {
  const { kind, detail, width, size, gap, rails } = frame;
  const rail = rails === "none" ? 0 : RAIL;
  const dock = rails === "bus" ? DOCK : null;
  const layout: Layout = {
    kind,
    detail,
    cells: [],
    hosts: [],
    groups: [],
    width: 0,
    height: 0,
    cellSize: size,
    gap,
    rails,
    dock,
  };
  let [x, y, tallest] = [0, dock ? dock.height + BELOW_DOCK : 0, 0];
  plans.forEach((plan, group) => {
    const wide = plan.columns * size + (plan.columns - 1) * gap + 2 * PADDING;
    const high = plan.rows * (size + rail) + (plan.rows - 1) * gap + 2 * PADDING;
    if (x > 0 && x + wide > width) [x, y, tallest] = [0, y + tallest + GROUP_GAP, 0];
    const top = y + LABEL_HEIGHT;
    const { label, note, rows, columns, origin } = plan;
    layout.groups.push({ label, note, rows, columns, origin, x, y: top, width: wide, height: high });
    for (const place of plan.slots) layout.cells.push(cellAt(place, group, { x, y: top }, layout));
    layout.width = Math.max(layout.width, x + wide);
    x += wide + GROUP_GAP;
    tallest = Math.max(tallest, high + LABEL_HEIGHT);
  });
  layout.height = y + tallest;
  return layout;
}

function cellAt(place: Slot, group: number, origin: { x: number; y: number }, layout: Layout): Cell {
  const { cellSize: size, gap, rails } = layout;
  const [part, of] = place.part;
  const width = size / of;
  const pitch = size + gap + (rails === "none" ? 0 : RAIL);
  return {
    device: place.device,
    group,
    column: place.column,
    row: place.row,
    stands: 1,
    x: origin.x + PADDING + place.column * (size + gap) + part * width,
    y: origin.y + PADDING + (rails === "bus" ? RAIL : 0) + place.row * pitch,
    width,
    height: size,
  };
}

function layOutHosts(devices: readonly PlacedDevice[], width: number): Layout {
  const hosts = groupByHost(devices);
  const columns = Math.max(1, Math.floor(width / 52));
  const slots = hosts.map((host, i) => slot(host.members[0] ?? 0, i % columns, Math.floor(i / columns)));
  const plan = {
    label: count(hosts.length, "host"),
    note: "1 tile = 1 host",
    slots,
    columns,
    rows: Math.ceil(hosts.length / columns),
  };
  const layout = arrange([plan], { kind: "host", detail: "hosts", width, size: 44, gap: 6, rails: "none" });
  layout.hosts = hosts;
  layout.cells.forEach((cell, i) => {
    cell.stands = hosts[i]?.members.length ?? 1;
  });
  return layout;
}
