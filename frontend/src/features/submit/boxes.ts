/** Where a core is on its slice: x, y, z, core. */
export type Place = readonly [number, number, number, number];

/** The block of cores that each replica owns, and the slice that all of them fill together, where one was named. */
export interface Blocks {
  shape: readonly number[];
  stride: readonly number[];
  mesh: readonly number[] | null;
}

/** A free core, and the host that it is of: each replica of a run over several hosts lies on one of them. */
export interface FreeCore {
  place: Place;
  host: string;
}

/** How many replicas of up to `replicas` free cores have a box for, by the scheduler's search (`slices/blocks.py`). */
export function replicasInBox(free: readonly FreeCore[], replicas: number, blocks: Blocks | null): number {
  const cores = blocks ? product(blocks.shape) : 1;
  for (let n = Math.min(replicas, Math.floor(free.length / cores)); n > 0; n -= 1) {
    if (hasBox(free, n, cores, blocks)) return n;
  }
  return 0;
}

function hasBox(cores: readonly FreeCore[], replicas: number, each: number, blocks: Blocks | null): boolean {
  const free = cores.map(({ place }) => place);
  const hosts = new Map(cores.map(({ place, host }) => [String(place), host]));
  const low = AXES.map((axis) => Math.min(...free.map((place) => place[axis] ?? 0)));
  const high = AXES.map((axis) => Math.max(...free.map((place) => place[axis] ?? 0)));
  const mesh = AXES.map((axis) => (high[axis] ?? 0) - (low[axis] ?? 0) + 1);
  return boxesOf(mesh, replicas * each, blocks).some((box) =>
    cellsOf(mesh.map((size, axis) => size - (box[axis] ?? 1) + 1)).some((corner) => {
      const found = cellsOf(box).map((cell) => ({
        replica: replicaOf(cell, blocks),
        host: hosts.get(String(cell.map((step, axis) => step + (corner[axis] ?? 0) + (low[axis] ?? 0)))),
      }));
      return found.every(({ host }) => host !== undefined) && (!blocks || isEven(found));
    }),
  );
}

/** Names the replica whose block has that cell of a box: blocks with a stride lie inside one another. */
function replicaOf(cell: readonly number[], blocks: Blocks | null): string {
  return cell
    .map((at, axis) => {
      const stride = blocks?.stride[axis] ?? 1;
      return Math.floor(at / (stride * (blocks?.shape[axis] ?? 1))) * stride + (at % stride);
    })
    .join();
}

/** Whether each replica is on one host, and all hosts have equally many. */
function isEven(cells: readonly { replica: string; host: string | undefined }[]): boolean {
  const homes = new Map(cells.map(({ replica, host }) => [replica, host]));
  const counts = new Map<string | undefined, number>();
  for (const host of homes.values()) counts.set(host, (counts.get(host) ?? 0) + 1);
  return (
    cells.every(({ replica, host }) => homes.get(replica) === host) && new Set(counts.values()).size === 1
  );
}

/** Extents of boxes of the mesh that hold so many cores; the replicas' blocks fill theirs. */
function boxesOf(mesh: readonly number[], needed: number, blocks: Blocks | null): (readonly number[])[] {
  if (blocks?.mesh) {
    const fits = blocks.mesh.every((size, axis) => size <= (mesh[axis] ?? 0));
    return fits && product(blocks.mesh) === needed ? [blocks.mesh] : [];
  }
  const steps = AXES.map((axis) => (blocks?.shape[axis] ?? 1) * (blocks?.stride[axis] ?? 1));
  const times = mesh.map((most, axis) => Math.floor(most / (steps[axis] ?? 1)));
  return cellsOf(times)
    .map((cell) => cell.map((index, axis) => (index + 1) * (steps[axis] ?? 1)))
    .filter((box) => (blocks ? product(box) === needed : product(box) >= needed));
}

/** Every index below those sizes. */
function cellsOf(sizes: readonly number[]): number[][] {
  return sizes.reduce<number[][]>(
    (cells, size) =>
      cells.flatMap((cell) => Array.from({ length: Math.max(size, 0) }, (_, i) => [...cell, i])),
    [[]],
  );
}

function product(sizes: readonly number[]): number {
  return sizes.reduce((all, size) => all * size, 1);
}

const AXES = [0, 1, 2, 3];
