import { finiteNumber, nonEmpty, oneOf } from "@/lib/search-params";
import type { ChartActions } from "./chart-menu";
import {
  ALL,
  formatLimits,
  formatSpecs,
  isLog,
  type Limits,
  parseLimits,
  parseSmoothing,
  parseSpecs,
  type Spec,
  sameSpec,
  toggled,
} from "./view";
import { X_AXES, type XAxis } from "./x-axis";

/** What every page of charts keeps in the address. */
export interface ChartView {
  x?: XAxis | undefined;
  from?: number | undefined;
  to?: number | undefined;
  /** Charts that come first, each of one metric or several: `train/loss,val/loss;lr`. */
  pin?: string | undefined;
  /** Charts over the full width. */
  wide?: string | undefined;
  /** Charts with a logarithmic axis; `1` for all. */
  log?: string | undefined;
  /** Ends of vertical axes: `train/loss:0..2`. */
  y?: string | undefined;
  smooth?: number | undefined;
  /** A place of x that is kept. */
  at?: number | undefined;
}

export function chartView(search: Record<string, unknown>): ChartView {
  const [from, to] = [finiteNumber(search.from), finiteNumber(search.to)];
  const zoomed = from !== undefined && to !== undefined && from < to;
  const log = search.log === true || search.log === "true" ? ALL : nonEmpty(search.log);
  return {
    x: oneOf(search.x, X_AXES),
    from: zoomed ? from : undefined,
    to: zoomed ? to : undefined,
    pin: formatSpecs(parseSpecs(nonEmpty(search.pin))),
    wide: formatSpecs(parseSpecs(nonEmpty(search.wide))),
    log,
    y: formatLimits(parseLimits(nonEmpty(search.y))),
    smooth: parseSmoothing(finiteNumber(search.smooth)),
    at: finiteNumber(search.at),
  };
}

/** What the menu of one chart shows and changes. */
export function actionsOf(
  view: ChartView,
  change: (next: ChartView) => void,
  spec: Spec,
): Omit<ChartActions, "onOverlay"> {
  const key = formatSpecs([spec]) ?? "";
  const limits = parseLimits(view.y);
  const setLimits = (next: Limits) => {
    limits.delete(key);
    change({
      y: formatLimits(next.low === undefined && next.high === undefined ? limits : limits.set(key, next)),
    });
  };
  return {
    pinned: parseSpecs(view.pin).some((one) => sameSpec(one, spec)),
    onPin: () => change({ pin: toggled(view.pin, spec) }),
    wide: parseSpecs(view.wide).some((one) => sameSpec(one, spec)),
    onWide: () => change({ wide: toggled(view.wide, spec) }),
    log: isLog(view.log, spec),
    // A chart that leaves what holds for all leaves the others as they are only by a list: all go back, then one by one.
    onLog: () => change({ log: view.log === ALL ? undefined : toggled(view.log, spec) }),
    limits: limits.get(key) ?? {},
    onLimits: setLimits,
  };
}

/** Puts a chart of several metrics at the top, in the place of `old` if that is pinned. */
export function overlaid(view: ChartView, old: Spec, next: Spec): string | undefined {
  const pins = parseSpecs(view.pin);
  const at = pins.findIndex((one) => sameSpec(one, old));
  return formatSpecs(
    at < 0 || old.length < 2 ? [...pins.filter((one) => !sameSpec(one, next)), next] : pins.with(at, next),
  );
}
