export interface Spread {
  median: number;
  /** Median absolute deviation from the median. */
  mad: number;
}

/** Values by what can be drawn: finite ones on the scale, the others in lanes of their own. */
interface Lanes {
  finite: { replica: number; value: number }[];
  nan: number[];
  positive: number[];
  negative: number[];
}

export function lanesOf(values: readonly number[]): Lanes {
  const lanes: Lanes = { finite: [], nan: [], positive: [], negative: [] };
  values.forEach((value, replica) => {
    if (Number.isNaN(value)) lanes.nan.push(replica);
    else if (value === Number.POSITIVE_INFINITY) lanes.positive.push(replica);
    else if (value === Number.NEGATIVE_INFINITY) lanes.negative.push(replica);
    else lanes.finite.push({ replica, value });
  });
  return lanes;
}

/** Median and median absolute deviation of the finite values; `null` where there are none. */
export function spreadOf(values: readonly number[]): Spread | null {
  const finite = values.filter(Number.isFinite);
  if (finite.length === 0) return null;
  const middle = median(finite);
  return { median: middle, mad: median(finite.map((value) => Math.abs(value - middle))) };
}

/** The `most` replicas farthest from the median, values that are not finite first. */
export function mostExtreme(values: readonly number[], most: number): number[] {
  const middle = spreadOf(values)?.median ?? 0;
  const distance = (value: number): number =>
    Number.isFinite(value) ? Math.abs(value - middle) : Number.MAX_VALUE;
  return values
    .map((value, replica) => ({ replica, far: distance(value) }))
    .sort((a, b) => b.far - a.far || a.replica - b.replica)
    .slice(0, most)
    .map(({ replica }) => replica);
}

interface Bin {
  from: number;
  to: number;
  count: number;
}

/** Equal bins over the finite values; one bin where they are all equal. */
export function histogram(values: readonly number[], bins: number): Bin[] {
  const finite = values.filter(Number.isFinite);
  if (finite.length === 0) return [];
  const [low, high] = extent(finite);
  if (low === high) return [{ from: low, to: high, count: finite.length }];
  const width = high / bins - low / bins;
  const counts = new Array<number>(bins).fill(0);
  for (const value of finite) {
    const bin = Math.min(bins - 1, Math.floor(value / width - low / width));
    counts[bin] = (counts[bin] ?? 0) + 1;
  }
  const edge = (i: number) => low * (1 - i / bins) + high * (i / bins);
  return counts.map((count, i) => ({ from: edge(i), to: edge(i + 1), count }));
}

interface StripBucket {
  /** Smallest and largest finite value; `null` where none is finite. */
  min: number | null;
  max: number | null;
  mean: number | null;
  /** Elements that are NaN or infinite. */
  notFinite: number;
}

/** An array as at most `most` buckets, each keeping its extremes. */
export function stripOf(values: readonly number[], most: number): StripBucket[] {
  const buckets = Math.min(most, values.length);
  return Array.from({ length: buckets }, (_, i) => {
    const from = Math.floor((i * values.length) / buckets);
    const part = values.slice(from, Math.floor(((i + 1) * values.length) / buckets));
    const finite = part.filter(Number.isFinite);
    if (finite.length === 0) return { min: null, max: null, mean: null, notFinite: part.length };
    const [min, max] = extent(finite);
    // Added up as parts, which are never too large; rounding must not put it outside of its own values.
    const mean = finite.reduce((sum, value) => sum + value / finite.length, 0);
    return { min, max, mean: Math.min(max, Math.max(min, mean)), notFinite: part.length - finite.length };
  });
}

function extent(values: readonly number[]): [number, number] {
  return values.reduce<[number, number]>(
    ([low, high], value) => [Math.min(low, value), Math.max(high, value)],
    [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY],
  );
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  if (sorted.length % 2 === 1) return upper;
  const lower = sorted[middle - 1] ?? Number.NaN;
  return Number.isFinite(lower + upper) ? (lower + upper) / 2 : lower / 2 + upper / 2;
}
