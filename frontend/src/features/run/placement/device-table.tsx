import { useState } from "react";
import type { Placement } from "@/api/schema";
import { Button } from "@/components/ui/button";
import { ReplicaChip } from "@/components/ui/replica-chip";
import { ScrollBox } from "@/components/ui/scroll-box";
import { StateBadge } from "@/components/ui/state-badge";
import { classNames } from "@/lib/class-names";
import { formatBytes, formatInteger } from "@/lib/format";
import { bytesByHome, type Paint } from "./paint";

const PAGE = 256;
const HEADS = ["Replica", "Logical", "Device", "Host", "State", "Kind", "Coordinates", "Memory", "Variables"];

interface DeviceTableProps {
  placement: Placement;
  paints: readonly Paint[];
  selected: string | undefined;
  onSelect: (device: string | undefined) => void;
}

/** The map as a table: the same devices, facts and selection. */
export function DeviceTable({ placement, paints, selected, onSelect }: DeviceTableProps) {
  const [pages, setPages] = useState(1);
  const held = bytesByHome(placement);
  const devices = placement.devices.slice(0, pages * PAGE);
  return (
    <ScrollBox>
      <table className="w-full whitespace-nowrap" data-testid="placement-table">
        <caption className="sr-only">Devices of this run and what sits on them</caption>
        <thead>
          <tr className="border-line border-b text-left text-muted text-xs">
            {HEADS.map((head) => (
              <th className="h-7 pr-6 font-normal" key={head} scope="col">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {devices.map((device, index) => (
            <tr
              className={classNames(
                "h-8 border-line border-b",
                device.device === selected && "bg-accent-soft",
              )}
              key={device.device}
            >
              <td className="pr-6">
                {device.replica === null ? "–" : <ReplicaChip replica={device.replica} />}
              </td>
              <td className="pr-6">{device.logical ?? "–"}</td>
              <td className="pr-6">
                <button
                  aria-pressed={device.device === selected}
                  className="link font-mono text-xs"
                  onClick={() => onSelect(device.device === selected ? undefined : device.device)}
                  type="button"
                >
                  {paints[index]?.name}
                </button>
              </td>
              <td className="pr-6">{device.host_name}</td>
              <td className="pr-6">
                <StateBadge state={paints[index]?.state ?? "PENDING"} />
              </td>
              <td className="pr-6">{device.simulated ? `${device.kind}, simulated` : device.kind}</td>
              <td className="pr-6">{device.coords ? `(${device.coords.join(", ")})` : "not reported"}</td>
              <td className="pr-6">{formatBytes(device.memory_bytes)}</td>
              <td>{formatBytes(held.get(device.device) ?? 0)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {devices.length < placement.devices.length && (
        <Button className="mt-3" compact onClick={() => setPages(pages + 1)}>
          Show more of {formatInteger(placement.devices.length)} devices
        </Button>
      )}
    </ScrollBox>
  );
}
