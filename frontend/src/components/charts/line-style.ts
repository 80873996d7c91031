import { REPLICA_COLORS } from "@/lib/replica-colors";

/** How one line among others is drawn: one of eight colours, and after each eight another dash. */
interface LineStyle {
  color: `--${string}`;
  dash: number[];
}

const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3]];

/** The style of line number `nth`; a line that stands alone has none and is drawn in the accent. */
export function lineStyle(nth: number | null): LineStyle {
  if (nth === null) return { color: "--accent", dash: [] };
  const round = Math.floor(nth / REPLICA_COLORS.length) % DASHES.length;
  return { color: REPLICA_COLORS[nth % REPLICA_COLORS.length] ?? "--accent", dash: DASHES[round] ?? [] };
}
