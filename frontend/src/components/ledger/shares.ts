/** What of a whole went into what, as text. */
import { formatDuration } from "@/lib/format";

/** `38 %`, `0.4 %`; what is there but tiny is not shown as 0. */
export function formatShare(part: number, whole: number): string {
  if (!(whole > 0)) return "–";
  const percent = (100 * part) / whole;
  if (percent > 0 && percent < 0.1) return "< 0.1 %";
  return `${percent.toFixed(percent < 9.95 ? 1 : 0)} %`;
}

/** As a duration; what is there but too short for one is not shown as 0. */
export function formatSpent(seconds: number): string {
  return seconds > 0 && seconds < 0.05 ? "< 0.1 s" : formatDuration(seconds);
}

/** With two digits after the point; of a kind of device without a rate there is none. */
export function formatCost(cost: number | null, currency: string): string {
  if (cost === null) return "no rate";
  const text = cost.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  return currency ? `${text} ${currency}` : text;
}
