import type { PlacedDevice, Placement } from "@/api/schema";
import { type Fact, Facts } from "@/components/ui/facts";
import { StateBadge } from "@/components/ui/state-badge";
import { count, formatBytes } from "@/lib/format";
import type { Cell } from "./layout";
import { bytesByHome, type Paint } from "./paint";

interface DeviceCardProps {
  placement: Placement;
  cell: Cell;
  paint: Paint | undefined;
  /** Width of the visible part of the map, and how far it is scrolled to the right. */
  room: { width: number; scrolled: number };
}

const CARD_WIDTH = 264;

/** What is known of the device under the pointer: below its cell, so that the row stays visible. */
export function DeviceCard({ placement, cell, paint, room }: DeviceCardProps) {
  const device = placement.devices[cell.device];
  if (!device || !paint) return null;
  const left = Math.max(0, Math.min(cell.x - room.scrolled, room.width - CARD_WIDTH));
  return (
    <div
      className="pointer-events-none absolute z-10 rounded-panel border border-line-strong bg-bg px-3 py-2.5 text-xs"
      data-testid="device-card"
      role="presentation"
      style={{ left, top: cell.y + cell.height + 8, width: CARD_WIDTH }}
    >
      <p className="mb-1.5 text-sm">
        {cell.stands > 1 ? (
          <strong>{device.host_name}</strong>
        ) : (
          <>
            <strong>{paint.name}</strong> <span className="text-muted">on {device.host_name}</span>
          </>
        )}
      </p>
      <Facts facts={cell.stands > 1 ? hostFacts(placement, device) : deviceFacts(placement, device, paint)} />
    </div>
  );
}

/** A device's facts, for the card and the inspector. */
export function deviceFacts(placement: Placement, device: PlacedDevice, paint: Paint): Fact[] {
  const held = bytesByHome(placement).get(device.device);
  return [
    ["Replica", device.replica === null ? "none; holds variables only" : String(device.replica)],
    ["Logical device", device.logical === null ? "none" : String(device.logical)],
    [
      "State",
      <span className="inline-flex h-6 items-center align-top" key="state">
        <StateBadge state={paint.state} />
      </span>,
    ],
    ["Kind", device.simulated ? `${device.kind}, simulated` : device.kind],
    ["Coordinates", device.coords ? `(${device.coords.join(", ")})` : null],
    ["Core on chip", device.core_on_chip === null ? null : String(device.core_on_chip)],
    ["Memory", device.memory_bytes === null ? null : formatBytes(device.memory_bytes)],
    ["Variables here", placement.variables.length === 0 ? "no variables" : formatBytes(held ?? 0)],
  ];
}

function hostFacts(placement: Placement, first: PlacedDevice): Fact[] {
  const devices = placement.devices.filter((device) => device.host === first.host);
  const replicas = devices.flatMap((device) => device.replica ?? []);
  return [
    ["Devices", count(devices.length, "device")],
    ["Kind", first.simulated ? `${first.kind}, simulated` : first.kind],
    ["Replicas", replicas.length === 0 ? "none" : `${Math.min(...replicas)} to ${Math.max(...replicas)}`],
  ];
}
