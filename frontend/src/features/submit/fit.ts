import type { Device, Host } from "@/api/schema";
import { count } from "@/lib/format";
import { type FreeCore, replicasInBox } from "./boxes";
import type { Shape } from "./shape";

/** Devices of one platform on one host. */
export interface HostFit {
  host: string;
  /** The hosts that it stands for: itself, or those of a slice. */
  members: readonly string[];
  name: string;
  platform: string;
  simulated: boolean;
  free: number;
  /** Of the free ones those that such a run can take: on a slice as many as form a box. */
  usable: number;
  total: number;
  /** Why the host takes no runs now. */
  outOfService: string | null;
  /** Where it keeps checkpoints: hosts of one store read each other's. */
  store: string;
}

export interface Fit {
  verdict: "now" | "waits" | "never";
  sentence: string;
  hosts: HostFit[];
}

type Fleet = readonly HostFit[];

const OUT_OF_SERVICE: ReadonlySet<Host["state"]> = new Set(["lost", "draining", "quarantined"]);

/**
 * Whether the gang could start now, or ever, as far as the page knows the fleet: by the scheduler's rules, so that what the
 * server queues is never refused here. The server decides when it places the run; this is not its plan.
 */
export function fitOf(devices: readonly Device[], hosts: readonly Host[], shape: Shape, waits: boolean): Fit {
  const fleets = shape.platforms.map((platform) => fleetOf(devices, hosts, platform, shape));
  const judged = shape.oneSlice ? fleets.map((fleet) => withSlices(fleet, devices, hosts, shape)) : fleets;
  return { ...judge(judged, shape, waits), hosts: fleets.flat().sort(freestFirst) };
}

/** The hosts, and beside them each slice of several as if it were one host: a run of TPUStrategy gets a box of either. */
function withSlices(fleet: Fleet, devices: readonly Device[], hosts: readonly Host[], shape: Shape): Fleet {
  const known = new Map(hosts.map((one) => [one.id, one]));
  const slices = new Map<string, HostFit[]>();
  for (const host of fleet) {
    const name = known.get(host.host)?.slice?.name;
    const key = shape.saved ? `${name}/${host.store}` : name;
    if (name && key) slices.set(key, [...(slices.get(key) ?? []), host]);
  }
  const whole = [...slices.values()]
    .filter((members) => members.length > 1)
    .map((members) => sliceOf(members, known));
  return [...fleet, ...whole.map((slice) => ({ ...slice, usable: usableOf(slice, devices, shape) }))].sort(
    freestFirst,
  );
}

function sliceOf(members: readonly HostFit[], known: ReadonlyMap<string, Host>): HostFit {
  const [first] = members as [HostFit];
  return {
    ...first,
    name: `slice ${known.get(first.host)?.slice?.name}`,
    members: members.filter(({ outOfService }) => !outOfService).map(({ host }) => host),
    free: sum(members, "free"),
    total: sum(members, "total"),
    outOfService: null,
  };
}

/** The hosts with devices of the platform. Whatever is registered counts, also what is quarantined: it may come back. */
function fleetOf(devices: readonly Device[], hosts: readonly Host[], platform: string, shape: Shape): Fleet {
  const known = new Map(hosts.map((one) => [one.id, one]));
  const fleet = new Map<string, HostFit>();
  for (const { host, host_name: name, state, platform: its, simulated } of devices) {
    if (its !== platform) continue;
    const hostState = known.get(host)?.state;
    const outOfService = hostState && OUT_OF_SERVICE.has(hostState) ? hostState : null;
    const entry = fleet.get(host) ?? {
      host,
      members: [host],
      name,
      platform,
      simulated,
      free: 0,
      usable: 0,
      total: 0,
      outOfService,
      store: known.get(host)?.checkpoint_store || host,
    };
    entry.total += 1;
    entry.free += state === "FREE" && !outOfService ? 1 : 0;
    fleet.set(host, entry);
  }
  return [...fleet.values()]
    .map((entry) => ({ ...entry, usable: usableOf(entry, devices, shape) }))
    .sort(freestFirst);
}

/** As the scheduler counts: all where the gang has its box or devices lie on no slice, else those of fewer replicas. */
function usableOf({ members, platform, free }: HostFit, devices: readonly Device[], shape: Shape): number {
  if (platform !== "tpu" || free === 0) return free;
  const here = devices.filter(
    (one) => members.includes(one.host) && one.platform === platform && one.state === "FREE",
  );
  const places = here.map(coreOf).filter((core) => core !== null);
  if (places.length < here.length) return members.length > 1 ? 0 : free;
  const replicas = replicasInBox(places, shape.replicas, shape.blocks);
  return replicas >= shape.replicas ? free : replicas * shape.devicesPerReplica;
}

function coreOf({ host, platform, coords, core_on_chip: core }: Device): FreeCore | null {
  const [x, y, z] = coords ?? [];
  if (platform !== "tpu" || x === undefined || y === undefined || z === undefined) return null;
  return { host, place: [x, y, z, core ?? 0] };
}

function judge(fleets: readonly Fleet[], shape: Shape, waits: boolean): Omit<Fit, "hosts"> {
  if (shape.unsupported) return { verdict: "never", sentence: shape.unsupported };
  const ready = fleets.find((fleet) => room(fleet, shape, "usable") >= shape.replicas);
  if (ready) return { verdict: "now", sentence: startsOn(ready, shape) };
  const fleet = fleets.reduce((best, other) => (holdsMore(other, best, shape) ? other : best));
  if (room(fleet, shape, "total") >= shape.replicas) {
    const sentence = `It will wait for ${need(shape)}; ${freeNow(fleet, shape)}.`;
    return { verdict: "waits", sentence: `${sentence}${apart(fleet, shape, "total")}` };
  }
  const known = largestRoom(fleet, shape);
  return waits
    ? { verdict: "waits", sentence: `It needs ${need(shape)} and ${known}: it will wait for more.` }
    : { verdict: "never", sentence: `It needs ${need(shape)}, but ${known}.` };
}

/** How many replicas have room; a replica never spans hosts. */
function room(fleet: Fleet, shape: Shape, devices: "usable" | "total"): number {
  const rooms = new Map<string, number>();
  for (const host of fleet) {
    const group = isWhole(shape) ? String(host.members) : shape.saved ? host.store : "";
    const replicas = Math.floor(host[devices] / shape.devicesPerReplica);
    rooms.set(group, (rooms.get(group) ?? 0) + replicas);
  }
  return Math.max(0, ...rooms.values());
}

function holdsMore(fleet: Fleet, other: Fleet, shape: Shape): boolean {
  const more = room(fleet, shape, "total") - room(other, shape, "total");
  return more > 0 || (more === 0 && sum(fleet, "total") > sum(other, "total"));
}

function startsOn(fleet: Fleet, shape: Shape): string {
  const [freest] = fleet;
  if (freest && room([freest], shape, "usable") >= shape.replicas)
    return `${count(freest.free, kind(shape))} free on ${freest.name}: it can start at once.`;
  const free = `${count(sum(fleet, "free"), kind(shape))} free on ${fleet.filter((host) => host.free > 0).length} hosts`;
  const split = `${free}, none with room for all replicas: it can start at once, split over several.`;
  return `${split}${apart(fleet, shape, "usable")}`;
}

/** What to know where only hosts that cannot read each other's checkpoints have room together, and none alone. */
function apart(fleet: Fleet, shape: Shape, devices: "usable" | "total"): string {
  // A host of its own store has no more room than its store.
  return isWhole(shape) || room(fleet, { ...shape, saved: true }, devices) >= shape.replicas
    ? ""
    : " They share no checkpoint store: run.checkpoint fails there.";
}

function freeNow(fleet: Fleet, shape: Shape): string {
  const [freest] = fleet;
  if (!freest?.free) return "none is free now";
  const needed = shape.replicas * shape.devicesPerReplica;
  if (
    sum(isWhole(shape) ? [freest] : fleet, "free") >= needed &&
    fleet.some((host) => host.usable < host.free)
  )
    return `${freest.name} has ${freest.free} free now, but no box of them side by side is large enough`;
  return isWhole(shape) || fleet.length === 1
    ? `${freest.name} has ${freest.free} free now`
    : `the ${fleet.length} hosts have ${sum(fleet, "free")} free now`;
}

function need(shape: Shape): string {
  const each = shape.devicesPerReplica;
  const devices =
    each > 1
      ? `${count(shape.replicas, "replica")} of ${count(each, kind(shape))}`
      : count(shape.replicas, kind(shape));
  if (shape.replicas === 1) return devices;
  if (shape.oneHost) return `${devices} on one host`;
  if (shape.oneSlice) return `${devices} on one slice`;
  return shape.saved ? `${devices} on hosts that share a checkpoint store` : devices;
}

function largestRoom(fleet: Fleet, shape: Shape): string {
  const largest = Math.max(0, ...fleet.map((host) => host.total));
  if (fleet.length === 0) return `no host with a ${kind(shape)} is known`;
  if (shape.oneHost || fleet.length === 1 || largest < shape.devicesPerReplica)
    return `the largest host has ${count(largest, kind(shape))}`;
  if (shape.oneSlice)
    return `the largest slice has room for ${count(room(fleet, shape, "total"), "replica")}`;
  if (shape.saved)
    return `no hosts of one store have room for more than ${count(room(fleet, shape, "total"), "replica")}`;
  const together = `the ${fleet.length} hosts together have ${count(sum(fleet, "total"), kind(shape))}`;
  return shape.devicesPerReplica > 1
    ? `${together}, room for ${count(room(fleet, shape, "total"), "replica")}`
    : together;
}

/** Whether the gang is on one host, or on one slice that stands for one, and is never split further. */
function isWhole(shape: Shape): boolean {
  return shape.oneHost !== null || shape.oneSlice;
}

function kind({ platforms: [platform, another] }: Shape): string {
  return another || !platform ? "device" : `${platform.toUpperCase()} device`;
}

function sum(fleet: Fleet, devices: "free" | "total"): number {
  return fleet.reduce((all, host) => all + host[devices], 0);
}

function freestFirst(a: HostFit, b: HostFit): number {
  return b.usable - a.usable || b.free - a.free || b.total - a.total;
}
