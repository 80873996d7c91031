import type { Device } from "@/api/schema";
import { count } from "@/lib/format";

export interface HostFit {
  host: string;
  name: string;
  free: number;
  total: number;
}

export interface Fit {
  verdict: "now" | "waits" | "never";
  sentence: string;
  hosts: HostFit[];
}

/**
 * Whether a run of `replicas` devices on one host could start now, as far as the page knows the fleet. The server decides when
 * it places the run; this is not its plan.
 */
export function fitOf(devices: readonly Device[], replicas: number, platform: string, waits: boolean): Fit {
  const hosts = new Map<string, HostFit>();
  for (const device of devices) {
    if (platform !== "any" && device.platform !== platform) continue;
    const host = hosts.get(device.host) ?? { host: device.host, name: device.host_name, free: 0, total: 0 };
    host.total += device.state === "QUARANTINED" ? 0 : 1;
    host.free += device.state === "FREE" ? 1 : 0;
    hosts.set(device.host, host);
  }
  const sorted = [...hosts.values()].sort((a, b) => b.free - a.free || b.total - a.total);
  return { ...judge(sorted, replicas, platform, waits), hosts: sorted };
}

function judge(
  hosts: readonly HostFit[],
  replicas: number,
  platform: string,
  waits: boolean,
): Omit<Fit, "hosts"> {
  const kind = platform === "any" ? "device" : `${platform.toUpperCase()} device`;
  const free = hosts[0];
  const largest = Math.max(0, ...hosts.map((host) => host.total));
  if (free && free.free >= replicas) {
    return {
      verdict: "now",
      sentence: `${count(free.free, kind)} free on ${free.name}: it can start at once.`,
    };
  }
  if (largest >= replicas) {
    const best = free ? `${free.name} has ${free.free} free now` : "none is free now";
    return { verdict: "waits", sentence: `It will wait for ${count(replicas, kind)} on one host; ${best}.` };
  }
  const have =
    hosts.length === 0 ? `no host with a ${kind} is known` : `the largest host has ${count(largest, kind)}`;
  return waits
    ? {
        verdict: "waits",
        sentence: `It needs ${count(replicas, kind)} on one host and ${have}: it will wait for one.`,
      }
    : { verdict: "never", sentence: `It needs ${count(replicas, kind)} on one host, but ${have}.` };
}
