/**
 * An exponential moving average of the drawn values: `weight` (0 to below 1) of what was before, the rest of what is now.
 * Divided by how much of the weights is used up, so that it begins at the first value and not at zero. A value that is no
 * number stays a hole and adds nothing. Never outside of what was averaged: rounding would draw noise where a curve is flat.
 */
export function smoothed(values: readonly (number | null)[], weight: number): (number | null)[] {
  let average = 0;
  let left = 1;
  let least = Infinity;
  let greatest = -Infinity;
  return values.map((value) => {
    if (value === null) return null;
    // Of two shares, as the sum of two large numbers may have no place in one.
    average = weight * average + (1 - weight) * value;
    left *= weight;
    least = Math.min(least, value);
    greatest = Math.max(greatest, value);
    return left < 1 ? Math.min(Math.max(average / (1 - left), least), greatest) : value;
  });
}
