/** What each tab of a run keeps in the address. Values that mean nothing fall away, and the tab shows its default. */
import { chartView } from "@/components/metrics/chart-view";
import { formatSpecs, parseSpecs } from "@/components/metrics/view";
import { finiteNumber, flag, nonEmpty, oneOf, optional, wholeNumber } from "@/lib/search-params";

type Search = Record<string, unknown>;

const COLOR_BY = ["replica", "state", "host"] as const;
const LEVELS = ["debug", "info", "warning", "error", "critical"] as const;
const STREAMS = ["stdout", "stderr", "system"] as const;
const LAYOUTS = ["host", "torus", "replica"] as const;

export function placementSearch(search: Search) {
  return optional({
    color: oneOf(search.color, COLOR_BY),
    layout: oneOf(search.layout, LAYOUTS),
    view: oneOf(search.view, ["map", "table"]),
    /** Id of the selected device. */
    sel: nonEmpty(search.sel),
  });
}

export function reductionsSearch(search: Search) {
  return optional({
    /** Name of the reduction. */
    var: nonEmpty(search.var),
    /** Without a step the newest one is followed. */
    step: wholeNumber(search.step),
    /** Instead of a step: the recorded one nearest to it, as a chart leads here from any place. */
    near: wholeNumber(search.near),
    origin: oneOf(search.origin, ["host", "in_step"]),
    attempt: nonEmpty(search.attempt),
    /** Which one, where a step holds several of the name. */
    nth: wholeNumber(search.nth, 1),
  });
}

export function metricsSearch(search: Search) {
  return optional({
    ...chartView(search),
    attempt: nonEmpty(search.attempt),
    /** What the names hold. */
    q: nonEmpty(search.q),
    /** Groups that are open or shut otherwise than they would be. */
    open: formatSpecs(parseSpecs(nonEmpty(search.open))),
    shut: formatSpecs(parseSpecs(nonEmpty(search.shut))),
  });
}

export function logsSearch(search: Search) {
  return optional({
    attempt: nonEmpty(search.attempt),
    member: nonEmpty(search.member),
    wrap: flag(search.wrap),
    /** Text to find, or an expression. */
    find: nonEmpty(search.find),
    regex: flag(search.regex),
    /** The least grave level that is looked for. */
    level: oneOf(search.level, LEVELS),
    stream: oneOf(search.stream, STREAMS),
    /** Lines written from then, and until then. */
    since: nonEmpty(search.since),
    until: nonEmpty(search.until),
  });
}

export function timeSearch(search: Search) {
  const from = finiteNumber(search.from) ?? -1;
  const to = finiteNumber(search.to) ?? -1;
  return optional({
    /** What is enlarged, in seconds since the run was submitted. */
    ...(from >= 0 && from < to && { from, to }),
    /** Id of the profile that is drawn. */
    trace: nonEmpty(search.trace),
  });
}
