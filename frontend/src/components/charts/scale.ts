/** A linear scale of numbers to shares of a width, 0 to 1. */
export interface Scale {
  low: number;
  high: number;
  /** Share of the width at which a value stands. */
  at: (value: number) => number;
  ticks: number[];
}

/** Covers all values with a margin on both sides; equal values stand in the middle. */
export function scaleOver(values: readonly number[], wantedTicks = 4): Scale | null {
  const finite = values.filter(Number.isFinite);
  if (finite.length === 0) return null;
  const [least, most] = [Math.min(...finite), Math.max(...finite)];
  const margin = most > least ? (most - least) * 0.06 : Math.abs(most) * 0.05 || 1;
  const [low, high] = [least - margin, most + margin];
  return { low, high, at: (value) => (value - low) / (high - low), ticks: niceTicks(low, high, wantedTicks) };
}

/** Round numbers between two ends: steps of 1, 2 or 5 times a power of ten. */
export function niceTicks(low: number, high: number, wanted: number): number[] {
  const rough = (high - low) / Math.max(1, wanted);
  if (!(rough > 0) || !Number.isFinite(rough)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const off = (factor: number) => Math.abs(Math.log(factor * power) - Math.log(rough));
  const step = power * [1, 2, 5, 10].reduce((best, factor) => (off(factor) < off(best) ? factor : best));
  const first = Math.ceil(low / step);
  const count = Math.floor(high / step) - first + 1;
  return Array.from({ length: Math.max(0, count) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}
