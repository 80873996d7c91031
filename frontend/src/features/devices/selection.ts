import type { Device, Host } from "@/api/schema";

export type Selection =
  | { kind: "device"; device: Device; host: Host | undefined }
  | { kind: "host"; host: Host };

/** What `sel=device:dev_...` or `sel=host:hst_...` names; null where it names nothing that is there. */
export function findSelection(
  sel: string | undefined,
  hosts: readonly Host[],
  devices: readonly Device[],
): Selection | null {
  const [kind, id] = sel?.split(":") ?? [];
  if (kind === "host") {
    const host = hosts.find((candidate) => candidate.id === id);
    return host ? { kind, host } : null;
  }
  const device = kind === "device" ? devices.find((candidate) => candidate.id === id) : undefined;
  return device ? { kind: "device", device, host: hosts.find((host) => host.id === device.host) } : null;
}

type Show = "free" | "held" | "unhealthy" | undefined;

/** Whether a device passes the page's filter. */
export function isShown(device: Device, show: Show, platform: string | undefined): boolean {
  if (platform && device.platform !== platform) return false;
  if (show === "free") return device.state === "FREE";
  if (show === "held") return device.state === "HELD" || device.state === "RELEASING";
  return show !== "unhealthy" || device.state === "QUARANTINED";
}
