import type { Attempt, Host, PlacedDevice, Placement } from "@/api/schema";
import { hatchOf, REPLICA_COLORS } from "@/lib/replica-colors";
import type { Rails } from "./layout";

type ColorBy = "replica" | "state" | "host";
/** Drawn as a shape over the cell: crossed out, dashed border, cut corner. */
type Overlay = "dead" | "silent" | "draining" | null;
export type Glyph = "sheets" | "cylinder" | "dot" | null;

/** How one device is drawn; colours are names of tokens. */
export interface Paint {
  fill: `--${string}` | null;
  hatch: 0 | 1 | 2 | 3;
  /** The replica, and the logical device after a dot where a replica has several. */
  title: string;
  /** What the device is called on its host. */
  name: string;
  glyph: Glyph;
  overlay: Overlay;
  /** What the state is called, for hover card and table. */
  state: string;
}

export interface Scene {
  placement: Placement;
  attempt: Attempt | undefined;
  hosts: readonly Host[];
  /** The run ended: what its hosts do now says nothing of it. */
  ended: boolean;
}

/** Colours are gone back to. */
const painted = new WeakMap<Scene, Map<ColorBy, readonly Paint[]>>();

export function paintsFor(scene: Scene, colorBy: ColorBy): readonly Paint[] {
  const known = painted.get(scene) ?? new Map<ColorBy, readonly Paint[]>();
  const paints = known.get(colorBy) ?? paint(scene, colorBy);
  painted.set(scene, known.set(colorBy, paints));
  return paints;
}

function paint(scene: Scene, colorBy: ColorBy): Paint[] {
  const { devices } = scene.placement;
  const named = colorBy === "host" ? [...new Set(devices.map((device) => device.host))].sort() : [];
  const hosts = new Map(named.map((host, nth) => [host, nth]));
  return factsOf(scene).map(({ title, name, glyph, overlay, state }, at) => {
    const device = devices[at];
    const { fill, hatch } = device ? colorOf(device, colorBy, hosts, state) : NO_COLOR;
    return { fill, hatch, title, name, glyph, overlay, state };
  });
}

const NO_COLOR = { fill: null, hatch: 0 } as const;
type Facts = Omit<Paint, "fill" | "hatch">;
/** What is drawn of each device whatever the colours say: another colour makes no text of ten thousand devices again. */
const known = new WeakMap<Scene, readonly Facts[]>();

function factsOf(scene: Scene): readonly Facts[] {
  const facts = known.get(scene) ?? readFacts(scene);
  known.set(scene, facts);
  return facts;
}

function readFacts(scene: Scene): Facts[] {
  const { placement } = scene;
  const ofHosts = knownOf(scene);
  const logical = logicalPerReplica(placement.devices);
  const holding = new Set(placement.variables.flatMap((variable) => variable.homes));
  return placement.devices.map((device) => {
    const overlay = overlayOf(device, ofHosts);
    return {
      title: titleOf(device, logical),
      name: deviceName(device),
      glyph: glyphOf(placement.strategy, holding.has(device.device)),
      overlay,
      state: stateOf(device, ofHosts, overlay),
    };
  });
}

/** `cpu:3`, as JAX counts the devices of a host. */
export function deviceName(device: PlacedDevice): string {
  return `${device.platform}:${device.index}`;
}

/** `2`, or `2·1` where a replica has several logical devices. */
function titleOf(device: PlacedDevice, logicalDevices: number): string {
  if (device.replica === null) return "–";
  return logicalDevices > 1 ? `${device.replica}·${device.logical ?? 0}` : String(device.replica);
}

export function logicalPerReplica(devices: readonly PlacedDevice[]): number {
  return devices.reduce((most, device) => Math.max(most, (device.logical ?? 0) + 1), 1);
}

/** The lines that belong to a strategy: an all-reduce ring, spokes to the shared storage, or none. */
export function railsOf(placement: Placement): Rails {
  if (placement.strategy === "central_storage") return "bus";
  const replicas = new Set(placement.devices.map((device) => device.replica));
  return placement.strategy === "mirrored" && replicas.size > 1 ? "ring" : "none";
}

/** Bytes of variables that each home holds, by device id or `host`. */
export function bytesByHome(placement: Placement): Map<string, number> {
  const bytes = new Map<string, number>();
  for (const variable of placement.variables) {
    for (const home of variable.homes) bytes.set(home, (bytes.get(home) ?? 0) + variable.size_bytes);
  }
  return bytes;
}

function glyphOf(strategy: string, holds: boolean): Glyph {
  if (strategy === "one_device") return "dot";
  if (strategy === "central_storage") return holds ? "cylinder" : null;
  return "sheets";
}

const STATE_FILL: Record<string, `--${string}`> = {
  RUNNING: "--active",
  STARTING: "--active",
  CLAIMED: "--active",
  PENDING: "--idle",
  LOST: "--bad",
  suspect: "--warn",
  draining: "--warn",
};

function colorOf(device: PlacedDevice, colorBy: ColorBy, hosts: ReadonlyMap<string, number>, state: string) {
  if (device.replica === null) return NO_COLOR;
  if (colorBy === "state") return { fill: STATE_FILL[state] ?? "--idle", hatch: 0 } as const;
  const index = colorBy === "host" ? (hosts.get(device.host) ?? 0) : device.replica;
  return { fill: REPLICA_COLORS[index % REPLICA_COLORS.length] ?? null, hatch: hatchOf(index) };
}

/** What is known of each host, by its id: a fleet has thousands of devices on hundreds of them. */
interface Known {
  members: ReadonlyMap<string, Attempt["members"][number]>;
  hosts: ReadonlyMap<string, Host>;
  ended: boolean;
}

function knownOf({ attempt, hosts, ended }: Scene): Known {
  return {
    // The first of a host that has several.
    members: new Map(attempt?.members.toReversed().map((member) => [member.host, member])),
    hosts: new Map(hosts.map((host) => [host.id, host])),
    ended,
  };
}

function overlayOf(device: PlacedDevice, { members, hosts, ended }: Known): Overlay {
  const member = members.get(device.host);
  if (member?.state === "LOST" || (member?.state === "EXITED" && member.signal !== null)) return "dead";
  if (ended) return null;
  const host = hosts.get(device.host);
  if (host?.state === "lost") return "dead";
  if (host?.state === "suspect") return "silent";
  return host?.state === "draining" ? "draining" : null;
}

function stateOf(device: PlacedDevice, { members, ended }: Known, overlay: Overlay): string {
  if (overlay === "silent") return "suspect";
  if (overlay === "draining") return "draining";
  const member = members.get(device.host);
  if (overlay === "dead" && member?.state !== "EXITED") return "LOST";
  return member?.state ?? (ended ? "EXITED" : "PENDING");
}
