import type { Place } from "./boxes";

/** A kind of TPU, as `slices/known.py` has it: devices that JAX shows and cores for each chip, axes of its network. */
interface Generation {
  devices: number;
  cores: number;
  dimensions: 2 | 3;
}

const GENERATIONS: Record<string, Generation> = {
  v2: { devices: 2, cores: 2, dimensions: 2 },
  v3: { devices: 2, cores: 2, dimensions: 2 },
  v4: { devices: 1, cores: 2, dimensions: 3 },
  v5e: { devices: 1, cores: 1, dimensions: 2 },
  v5p: { devices: 1, cores: 2, dimensions: 3 },
  v6e: { devices: 1, cores: 1, dimensions: 2 },
  tpu7x: { devices: 2, cores: 2, dimensions: 3 },
};
const SHAPE = /^([a-z0-9]+):(\d{1,4})x(\d{1,4})(?:x(\d{1,4}))?$/;
const ACCELERATOR_TYPE = /^([a-z0-9]+)-(\d{1,6})$/;
const HOST = [2, 2, 1];

/** The mesh (x, y, z, core) of a slice by its chips, `v4:2x2x4`, or its accelerator type, `v4-32`; null for neither. */
export function meshOf(topology: string): Place | null {
  const text = topology.trim().toLowerCase();
  const [, kind = "", x, y, z = "1"] = SHAPE.exec(text) ?? [];
  const named = GENERATIONS[kind];
  if (x && named) return [Number(x), Number(y), Number(z), named.devices];
  const [, type = "", count] = ACCELERATOR_TYPE.exec(text) ?? [];
  const generation = GENERATIONS[type === "v5litepod" ? "v5e" : type];
  const box = generation && compactBox(generation, Number(count));
  return box ? [box[0], box[1], box[2], generation.devices] : null;
}

type Box = readonly [number, number, number];

/** Of the boxes of so many cores or chips that whole hosts fill the one nearest to a square or cube. */
function compactBox({ cores, dimensions }: Generation, count: number): Box | null {
  const chips = count / cores;
  if (!Number.isInteger(chips) || chips < 1 || chips > MAX_CHIPS) return null;
  const boxes = boxesOf(chips, dimensions).filter((box) =>
    box.every((size, axis) => fillsHosts(size, axis, box)),
  );
  const [best = null] = boxes.sort((a, b) => spread(a, dimensions) - spread(b, dimensions) || lexical(a, b));
  return best;
}

/** Of the largest slice of any kind. */
const MAX_CHIPS = 9216;

/** Extents ascend, but a layer is written 2x2x1, as hosts lie. */
function boxesOf(chips: number, dimensions: 2 | 3): Box[] {
  if (chips === 1) return [[1, 1, 1]];
  const divisors = Array.from({ length: chips }, (_, index) => index + 1).filter(
    (size) => chips % size === 0,
  );
  if (dimensions === 2) return divisors.filter((x) => x <= chips / x).map((x) => [x, chips / x, 1] as const);
  return divisors.flatMap((x) =>
    divisors
      .filter((y) => x <= y && chips % (x * y) === 0)
      .map((y) => [x, y, chips / (x * y)] as const)
      .filter(([, y, z]) => z >= y || z === 1),
  );
}

/** A slice is within one host, or whole hosts fill it. */
function fillsHosts(size: number, axis: number, box: Box): boolean {
  const within = box.every((extent, at) => extent <= (HOST[at] ?? 1));
  return within || size % (HOST[axis] ?? 1) === 0;
}

function spread(box: Box, dimensions: number): number {
  const extents = box.slice(0, dimensions);
  return Math.max(...extents) - Math.min(...extents);
}

function lexical(a: Box, b: Box): number {
  return a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
}
