/** What charts of metrics keep in the address, as text that a person can read and change. */

/** A chart: one metric, or several in one. */
export type Spec = readonly string[];

/** `train/loss,val/loss;lr`: charts by `;`, their metrics by `,`. */
export function parseSpecs(text: string | undefined): Spec[] {
  return (text ?? "")
    .split(";")
    .map((chart) => chart.split(",").map(decoded).filter(Boolean))
    .filter((names) => names.length > 0);
}

export function formatSpecs(specs: readonly Spec[]): string | undefined {
  return specs.map((names) => names.map(encoded).join(",")).join(";") || undefined;
}

export function sameSpec(one: Spec, other: Spec): boolean {
  return formatSpecs([one]) === formatSpecs([other]);
}

/** What the vertical axis spans, as far as it is chosen. */
export interface Limits {
  low?: number | undefined;
  high?: number | undefined;
}

/** `train/loss:0..2;val/acc:0.5..`: the limits of charts. */
export function parseLimits(text: string | undefined): Map<string, Limits> {
  const found = new Map<string, Limits>();
  for (const part of (text ?? "").split(";")) {
    const [, key = "", low = "", high = ""] = /^(.+):([^:]*?)\.\.([^:]*)$/.exec(part) ?? [];
    const limits = { low: numberOf(low), high: numberOf(high) };
    if (limits.low !== undefined && limits.high !== undefined && limits.low >= limits.high) continue;
    if (key && (limits.low !== undefined || limits.high !== undefined)) found.set(key, limits);
  }
  return found;
}

export function formatLimits(limits: ReadonlyMap<string, Limits>): string | undefined {
  const parts = [...limits].map(([key, { low, high }]) => `${key}:${low ?? ""}..${high ?? ""}`);
  return parts.join(";") || undefined;
}

/** The weight of what was before in a smoothed curve: two digits, below 1; undefined is none. */
export function parseSmoothing(value: number | undefined): number | undefined {
  if (value === undefined || !(value > 0)) return undefined;
  return Math.min(0.999, Math.round(value * 1000) / 1000) || undefined;
}

/** Whether the chart has a logarithmic axis: all have by `1`, else those that are listed. */
export function isLog(log: string | undefined, spec: Spec): boolean {
  return log === ALL || parseSpecs(log).some((one) => sameSpec(one, spec));
}

export const ALL = "1";

/** One of a list of charts in the address is added, or taken away. */
export function toggled(text: string | undefined, spec: Spec): string | undefined {
  const specs = parseSpecs(text);
  const without = specs.filter((one) => !sameSpec(one, spec));
  return formatSpecs(without.length < specs.length ? without : [...specs, spec]);
}

/** `train` of `train/loss`; names without a `/` have none. */
export function groupOf(name: string): string {
  const at = name.indexOf("/");
  return at > 0 ? name.slice(0, at) : "";
}

function numberOf(text: string): number | undefined {
  const value = text.trim() === "" ? Number.NaN : Number(text);
  return Number.isFinite(value) ? value : undefined;
}

const encoded = (name: string) =>
  name.replace(/[%,;]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
const decoded = (text: string) =>
  text.replace(/%(25|2C|3B)/gi, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
