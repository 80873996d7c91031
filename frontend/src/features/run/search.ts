/** What each tab of a run keeps in the address. Values that mean nothing fall away, and the tab shows its default. */
import { finiteNumber, flag, nonEmpty, oneOf, optional, wholeNumber } from "@/lib/search-params";

type Search = Record<string, unknown>;

const COLOR_BY = ["replica", "state", "host"] as const;
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
    origin: oneOf(search.origin, ["host", "in_step"]),
    attempt: nonEmpty(search.attempt),
    /** Which one, where a step holds several of the name. */
    nth: wholeNumber(search.nth, 1),
  });
}

export function throughputSearch(search: Search) {
  const [from, to] = [finiteNumber(search.from), finiteNumber(search.to)];
  const range =
    from !== undefined && to !== undefined && from < to ? { from, to } : { from: undefined, to: undefined };
  return optional({
    x: oneOf(search.x, ["step", "time"]),
    log: flag(search.log),
    attempt: nonEmpty(search.attempt),
    ...range,
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
  });
}
