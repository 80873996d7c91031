/** Eight fills for replicas, and a hatch that changes after each eight, so that a repeated colour still differs. */

export const REPLICA_COLORS = [
  "--replica-0",
  "--replica-1",
  "--replica-2",
  "--replica-3",
  "--replica-4",
  "--replica-5",
  "--replica-6",
  "--replica-7",
] as const;

/** 0: plain; 1, 2, 3: rising, falling and level lines. */
export function hatchOf(replica: number): 0 | 1 | 2 | 3 {
  return (Math.floor(replica / REPLICA_COLORS.length) % 4) as 0 | 1 | 2 | 3;
}

/** Black or white, whichever reads better on `#rrggbb`. */
export function inkOn(fill: string): "#000000" | "#ffffff" {
  const channels = [1, 3, 5].map((at) => Number.parseInt(fill.slice(at, at + 2), 16) / 255);
  const [red = 0, green = 0, blue = 0] = channels.map((c) =>
    c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4,
  );
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return luminance > 0.179 ? "#000000" : "#ffffff";
}
