import { useMemo } from "react";
import type { Placement } from "@/api/schema";
import { type Fact, Facts } from "@/components/ui/facts";
import { StrategyMark } from "@/components/ui/glyphs";
import { count, formatBytes, formatInteger } from "@/lib/format";
import { deviceFacts } from "./device-card";
import { executorsInWords } from "./executor";
import { hasCoordinates } from "./groups";
import { bytesByHome, deviceName, logicalPerReplica, type Paint } from "./paint";

interface SummaryProps {
  placement: Placement;
  paints: readonly Paint[];
  selected: string | undefined;
}

/** Beside the map: the selected device, or the placement in words. */
export function Summary({ placement, paints, selected }: SummaryProps) {
  const facts = useMemo(() => placementFacts(placement), [placement]);
  const index = placement.devices.findIndex((device) => device.device === selected);
  const [device, paint] = [placement.devices[index], paints[index]];
  if (device && paint) {
    return (
      <div data-testid="selected-device">
        <h3 className="mb-2">
          {deviceName(device)} <span className="font-normal text-muted">on {device.host_name}</span>
        </h3>
        <Facts
          facts={[
            ...deviceFacts(placement, device, paint),
            [
              "Id",
              <code key="id" className="break-all">
                {device.device}
              </code>,
            ],
          ]}
        />
      </div>
    );
  }
  return (
    <div data-testid="placement-summary">
      <Facts facts={facts} />
      <p className="mt-4 text-muted text-xs">{STRATEGY_SENTENCE[placement.strategy] ?? ""}</p>
    </div>
  );
}

const STRATEGY_SENTENCE: Record<string, string> = {
  mirrored:
    "Every device holds its own copy of each variable. An all-reduce over all replicas keeps the copies equal; which algorithm it uses is not reported.",
  tpu: "Every replica holds its own copy of each variable. An all-reduce over all replicas keeps the copies equal; which algorithm it uses is not reported.",
  central_storage:
    "Variables stand in one place only. Their values go out to each replica, the gradients come back and are applied there.",
  one_device: "One replica on one device holds everything.",
};

function executors({ executor }: Placement) {
  const words = executorsInWords(executor);
  if (words.length === 0) return null;
  return words.map((each) => (
    <span className="block" key={each}>
      {each}
    </span>
  ));
}

function placementFacts(placement: Placement): Fact[] {
  const computing = placement.devices.filter((device) => device.replica !== null);
  const replicas = new Set(computing.map((device) => device.replica)).size;
  const logical = logicalPerReplica(placement.devices);
  const hosts = new Set(placement.devices.map((device) => device.host)).size;
  const perDevice = Math.max(0, ...bytesByHome(placement).values());
  const copies = Math.max(0, ...placement.variables.map((variable) => variable.homes.length));
  return [
    [
      "Strategy",
      <span className="inline-flex h-6 items-center align-top" key="strategy">
        <StrategyMark kind={placement.strategy} />
      </span>,
    ],
    ["Executor", executors(placement)],
    [
      "Replicas",
      logical > 1 ? `${formatInteger(replicas)} × ${logical} logical devices` : formatInteger(replicas),
    ],
    ["Devices", `${count(computing.length, "device")} on ${count(hosts, "host")}`],
    [
      "Copies",
      placement.variables.length === 0 ? "no variables" : `×${copies}, ${formatBytes(perDevice)} each`,
    ],
    ["Coordinates", hasCoordinates(placement.devices) ? "reported" : null],
    ["Links", hasCoordinates(placement.devices) ? "to neighbours" : null],
    ["Confirmed", placement.confirmed ? "by the engine" : "scheduled, not yet built"],
  ];
}
