import type { PlacedDevice } from "@/api/schema";
import { count } from "@/lib/format";

/** How devices are put on the page. */
export type LayoutKind = "host" | "torus" | "replica";

export interface Slot {
  device: number;
  column: number;
  row: number;
  /** Part of the chip: [index, of]. */
  part: [number, number];
}

export interface GroupPlan {
  label: string;
  note: string;
  slots: Slot[];
  columns: number;
  rows: number;
  /** Of a slice: the coordinates x and y of its first column and row. */
  origin?: [number, number];
}

/** Whether every computing device reports coordinates, and no two of the same platform sit on the same core. */
export function hasCoordinates(devices: readonly PlacedDevice[]): boolean {
  const computing = devices.filter((device) => device.replica !== null);
  if (computing.length === 0) return false;
  const taken = new Set<string>();
  for (const device of computing) {
    if (!device.coords || device.coords.length === 0) return false;
    const key = `${device.platform}/${device.coords.join(",")}/${device.core_on_chip ?? 0}`;
    if (taken.has(key)) return false;
    taken.add(key);
  }
  return true;
}

/** The groups of a layout, each cell with its column and row; `fitting` cells stand side by side on the page. */
export function plansFor(devices: readonly PlacedDevice[], kind: LayoutKind, fitting: number): GroupPlan[] {
  if (kind === "torus") return torusPlans(devices);
  return kind === "replica" ? replicaPlans(devices, fitting) : hostPlans(devices, fitting);
}

export interface HostGroup {
  host: string;
  name: string;
  members: number[];
}

/** Device indices by host, hosts in order of name, devices in order of platform and index. */
export function groupByHost(devices: readonly PlacedDevice[]): HostGroup[] {
  const groups = new Map<string, HostGroup>();
  devices.forEach((device, index) => {
    const group = groups.get(device.host) ?? { host: device.host, name: device.host_name, members: [] };
    group.members.push(index);
    groups.set(device.host, group);
  });
  const order = (a: number, b: number): number => compareDevices(devices[a], devices[b]);
  for (const group of groups.values()) group.members.sort(order);
  return [...groups.values()].sort((a, b) => names.compare(a.name, b.name));
}

/** `host-2` before `host-10`. */
const names = new Intl.Collator("en", { numeric: true });

function compareDevices(a: PlacedDevice | undefined, b: PlacedDevice | undefined): number {
  if (!a || !b) return 0;
  return platformRank(a) - platformRank(b) || a.index - b.index;
}

/** Devices that compute come before the CPU that only holds parameters. */
function platformRank(device: PlacedDevice): number {
  return (device.replica === null ? 10 : 0) + ["tpu", "gpu", "cpu"].indexOf(device.platform);
}

function hostPlans(devices: readonly PlacedDevice[], fitting: number): GroupPlan[] {
  return groupByHost(devices).map((group) => {
    const columns = columnsFor(group.members.length, fitting);
    return {
      label: group.name,
      note: count(group.members.length, "device"),
      slots: group.members.map((device, i) => slot(device, i % columns, Math.floor(i / columns))),
      columns,
      rows: Math.ceil(group.members.length / columns),
    };
  });
}

/** Up to 8 in a row, or fewer where the page is narrow; beyond 64 devices the nearest square of a multiple of 8. */
function columnsFor(devices: number, fitting: number): number {
  if (devices > 64) return Math.ceil(Math.sqrt(devices) / 8) * 8;
  const most = [8, 4, 2].find((columns) => columns <= fitting) ?? 1;
  return Math.max(1, Math.min(devices, most));
}

function replicaPlans(devices: readonly PlacedDevice[], fitting: number): GroupPlan[] {
  const computing = devices
    .map((device, index) => ({ device, index }))
    .filter(({ device }) => device.replica !== null);
  computing.sort(
    (a, b) =>
      (a.device.replica ?? 0) - (b.device.replica ?? 0) || (a.device.logical ?? 0) - (b.device.logical ?? 0),
  );
  const logical = Math.max(1, ...computing.map(({ device }) => (device.logical ?? 0) + 1));
  const wanted = columnsFor(computing.length, fitting);
  const columns = Math.max(logical, wanted - (wanted % logical));
  const others = devices.flatMap((device, index) => (device.replica === null ? [index] : []));
  const members = [...computing.map(({ index }) => index), ...others];
  return [
    {
      label: count(computing.length / logical, "replica"),
      note: "",
      slots: members.map((device, i) => slot(device, i % columns, Math.floor(i / columns))),
      columns,
      rows: Math.ceil(members.length / columns),
    },
  ];
}

/** One group per z, x to the right and y downwards; cores of a chip share its square. */
function torusPlans(devices: readonly PlacedDevice[]): GroupPlan[] {
  const at = devices.map(
    (device) => [0, 1, 2].map((axis) => device.coords?.[axis] ?? 0) as [number, number, number],
  );
  const low = [0, 1].map((axis) => Math.min(...at.map((c) => c[axis as 0 | 1])));
  const cores = 1 + Math.max(0, ...devices.map((device) => device.core_on_chip ?? 0));
  const columns = 1 + Math.max(...at.map((c) => c[0])) - (low[0] ?? 0);
  const rows = 1 + Math.max(...at.map((c) => c[1])) - (low[1] ?? 0);
  const slices = [...new Set(at.map((c) => c[2]))].sort((a, b) => a - b);
  return slices.map((z) => {
    const slots = at.flatMap((c, device) =>
      c[2] === z
        ? [
            slot(device, c[0] - (low[0] ?? 0), c[1] - (low[1] ?? 0), [
              devices[device]?.core_on_chip ?? 0,
              cores,
            ]),
          ]
        : [],
    );
    return {
      label: slices.length > 1 ? `z = ${z}` : "x, y",
      note: sliceNote(slots.map((place) => devices[place.device])),
      slots,
      columns,
      rows,
      origin: [low[0] ?? 0, low[1] ?? 0],
    };
  });
}

/** How many devices a slice has, and their host where it is one. */
function sliceNote(devices: readonly (PlacedDevice | undefined)[]): string {
  const hosts = new Set(devices.map((device) => device?.host_name));
  return `${count(devices.length, "device")}${hosts.size === 1 ? `, ${[...hosts][0]}` : ""}`;
}

export function slot(device: number, column: number, row: number, part: [number, number] = [0, 1]): Slot {
  return { device, column, row, part };
}
