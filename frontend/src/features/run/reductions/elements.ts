import type { ArraySummary, Reduction } from "@/api/schema";

type Reader = (view: DataView, at: number) => number;

/** Bytes of an element and how it is read, little-endian; complex numbers are shown as statistics only. */
const READERS: Record<string, readonly [number, Reader]> = {
  bool: [1, (view, at) => view.getUint8(at)],
  int8: [1, (view, at) => view.getInt8(at)],
  uint8: [1, (view, at) => view.getUint8(at)],
  int16: [2, (view, at) => view.getInt16(at, true)],
  uint16: [2, (view, at) => view.getUint16(at, true)],
  float16: [2, (view, at) => halfOf(view.getUint16(at, true))],
  bfloat16: [2, (view, at) => upperHalfOf(view.getUint16(at, true))],
  int32: [4, (view, at) => view.getInt32(at, true)],
  uint32: [4, (view, at) => view.getUint32(at, true)],
  float32: [4, (view, at) => view.getFloat32(at, true)],
  int64: [8, (view, at) => Number(view.getBigInt64(at, true))],
  uint64: [8, (view, at) => Number(view.getBigUint64(at, true))],
  float64: [8, (view, at) => view.getFloat64(at, true)],
};

/** The reduction with every element of its arrays as the server keeps them; `null` for types that are no real numbers. */
export function withElements(reduction: Reduction, elements: ArrayBuffer): Reduction | null {
  const view = new DataView(elements);
  let at = 0;
  const filled: ArraySummary[] = [];
  for (const array of [...reduction.inputs, reduction.output]) {
    const [width, read] = READERS[array.dtype] ?? [0, () => Number.NaN];
    const size = array.shape.reduce((product, n) => product * n, 1);
    if (width === 0 || at + size * width > view.byteLength) return null;
    const begin = at;
    filled.push({ ...array, values: Array.from({ length: size }, (_, i) => read(view, begin + i * width)) });
    at += size * width;
  }
  const output = filled.pop();
  return output ? { ...reduction, inputs: filled, output } : null;
}

function upperHalfOf(bits: number): number {
  return new Float32Array(new Uint32Array([bits << 16]).buffer)[0] ?? Number.NaN;
}

function halfOf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
