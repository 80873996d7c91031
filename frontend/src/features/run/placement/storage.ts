import type { Placement } from "@/api/schema";
import { count, formatBytes } from "@/lib/format";
import { deviceName } from "./paint";

/** The one place that holds the variables of a central storage strategy. */
export interface Storage {
  title: string;
  note: string;
  /** Thickness of the lines to the replicas, by how many bytes they carry. */
  width: number;
}

const MIB = 2 ** 20;

export function storageOf(placement: Placement): Storage | null {
  if (placement.strategy !== "central_storage") return null;
  const bytes = placement.variables.reduce((sum, variable) => sum + variable.size_bytes, 0);
  const variables = placement.variables.length;
  return {
    title: homeName(placement),
    note: variables === 0 ? "no variables yet" : `${count(variables, "variable")}, ${formatBytes(bytes)}`,
    width: bytes > 64 * MIB ? 3 : bytes > MIB ? 2 : 1,
  };
}

function homeName(placement: Placement): string {
  const homes = [...new Set(placement.variables.flatMap((variable) => variable.homes))];
  const parameterOnly = placement.devices.find((device) => device.replica === null);
  const device = placement.devices.find(({ device: id }) => homes.includes(id)) ?? parameterOnly;
  if (device) return `${deviceName(device)} on ${device.host_name}`;
  return homes.includes("host") ? "Host memory" : "Parameter device";
}
