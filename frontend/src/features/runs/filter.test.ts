import { describe, expect, it } from "vitest";
import { flawOf, formatFilter, parseFilter, toggleState, toQuery } from "./filter";

describe("the runs filter", () => {
  it("takes states, job, labels and words apart", () => {
    expect(parseFilter("state:running,Queued job:digits label:team=vision tiny net")).toEqual({
      states: ["running", "queued"],
      job: "digits",
      version: undefined,
      owner: undefined,
      batch: undefined,
      labels: ["team=vision"],
      words: ["tiny", "net"],
      unknown: [],
    });
  });

  it("asks the server for its own states", () => {
    expect(toQuery(parseFilter("state:starting,failed word"), undefined)).toEqual({
      state: ["PLACED", "FAILED"],
      job: undefined,
      version: undefined,
      owner: undefined,
      batch: undefined,
      label: [],
      q: "word",
      sort: "-created",
    });
  });

  it("narrows to a version of a job and to a batch", () => {
    expect(toQuery(parseFilter("job:digits version:2 batch:bat_01"), undefined)).toMatchObject({
      job: "digits",
      version: 2,
      batch: "bat_01",
    });
  });

  it.each(["version:2", "job:digits version:two", "job:digits version:0"])("does not send %j", (text) => {
    const filter = parseFilter(text);
    expect(filter.unknown).toHaveLength(1);
    expect(toQuery(filter, undefined).version).toBeUndefined();
    expect(formatFilter(filter)).toBe(text);
  });

  it("keeps and names what it does not understand, and does not send it", () => {
    const filter = parseFilter("state:sleeping label:team");
    expect(filter.unknown).toEqual(["state:sleeping", "label:team"]);
    expect(toQuery(filter, undefined)).toMatchObject({ state: [], label: [], q: undefined });
    expect(formatFilter(filter)).toBe("state:sleeping label:team");
  });

  it.each([
    ["host:me", "is no filter; the filters are state:, job:, version:, owner:, batch:, label:"],
    [":me", "is no filter; the filters are state:, job:, version:, owner:, batch:, label:"],
    ["job:", "has no value"],
    ["version:x", "is no number of a version"],
    ["version:2", "needs a job:NAME beside it"],
    ["label:team", "is not of the form label:NAME=VALUE"],
  ])("names %j instead of searching for it", (part, flaw) => {
    expect(parseFilter(part).unknown).toEqual([part]);
    expect(toQuery(parseFilter(part), undefined).q).toBeUndefined();
    expect(flawOf(part)).toBe(flaw);
  });

  it.each([
    "state:running job:digits version:2 batch:bat_01 label:a=b:c words here",
    "just words",
    "state:failed,cancelled",
  ])("writes %j back as it was", (text) => {
    expect(formatFilter(parseFilter(text))).toBe(text);
  });

  it("takes an owner whose name has spaces in quotes", () => {
    const filter = parseFilter('state:failed owner:"local admin" tiny');
    expect(toQuery(filter, undefined)).toMatchObject({ owner: "local admin", q: "tiny" });
    expect(formatFilter(filter)).toBe('state:failed owner:"local admin" tiny');
    expect(formatFilter(parseFilter("owner:ci"))).toBe("owner:ci");
  });

  it("is nothing where nothing is filtered", () => {
    expect(formatFilter(parseFilter("   "))).toBeUndefined();
  });

  it("switches a state on and off", () => {
    const on = toggleState(parseFilter("job:digits"), "failed");
    expect(formatFilter(on)).toBe("state:failed job:digits");
    expect(formatFilter(toggleState(on, "failed"))).toBe("job:digits");
  });
});
