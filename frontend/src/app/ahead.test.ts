// @vitest-environment happy-dom
// The script and the client ask for paths below the address of the page.
import { readFileSync } from "node:fs";
import { QueryClient } from "@tanstack/react-query";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { overviewQuery, runQuery } from "@/api/queries";
import { batchRunsQuery } from "@/features/compare/queries";
import { curvesQuery, firstCurvesQuery, rangeOf } from "@/features/run/metrics/curves";
import { metricNamesQuery } from "@/features/run/queries";
import { metricsSearch } from "@/features/run/search";
import { parseSearch } from "@/lib/search-params";
import { metricsAhead } from "./ahead";
import { firstPage } from "./first-page";

const START = readFileSync("src/start.js", "utf8");
const RUN = "run_01JD0000000000000000000000";
const BATCH = "bat_01JD0000000000000000000000";

const fetched = vi.fn<(request: Request | string) => Promise<Response>>(async () =>
  Response.json({ groups: [], items: [], series: [] }),
);

function client(): QueryClient {
  return new QueryClient({ defaultOptions: { queries: { retry: false, staleTime: 5_000 } } });
}

/** Of all requests, what they ask for. */
function paths(): string[] {
  return fetched.mock.calls.map(([request]) => (typeof request === "string" ? request : request.url));
}

/** Answers by the end of the path. */
function answerWith(answers: Record<string, unknown>): void {
  fetched.mockImplementation(async (request) => {
    const { pathname } = new URL(typeof request === "string" ? request : request.url, "http://localhost");
    const found = Object.entries(answers).find(([end]) => pathname.endsWith(end));
    return Response.json(found ? found[1] : { groups: [], items: [], series: [] });
  });
}

/** Holds the answer to what has this in its address. */
function answerLater(part: string) {
  let answer: (response: Response) => void = () => {};
  const held = new Promise<Response>((done) => {
    answer = done;
  });
  fetched.mockImplementation(async (request) =>
    String(typeof request === "string" ? request : request.url).includes(part) ? held : Response.json({}),
  );
  return { answer: (response: Response) => answer(response) };
}

const POINTS = { x: [1], bucket: [0], count: [1], mean: [10], min: [10], max: [10], last: [10], last_x: [1] };

/** Runs the script as a page of this address does. */
function start(address: string): string[] {
  window.history.replaceState(null, "", address);
  // A script of its own, which has no exports to import.
  new Function(START)();
  return fetched.mock.calls.map(([request]) => String(request));
}

describe("what is asked ahead", () => {
  beforeEach(() => {
    vi.useRealTimers();
    fetched.mockReset();
    fetched.mockImplementation(async () => Response.json({ groups: [], items: [], series: [] }));
    vi.stubGlobal("fetch", fetched);
  });

  it.each([
    ["/", [overviewQuery]],
    [`/runs/${RUN}/logs`, [runQuery(RUN)]],
    [`/compare?batch=${BATCH}`, [batchRunsQuery(BATCH)]],
  ])("%s: its first questions, which the page then does not ask again", async (address, queries) => {
    expect(start(address)).toHaveLength(queries.length);

    const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
    for (const query of queries)
      await client.prefetchQuery<unknown, Error, unknown, readonly unknown[]>(query as never);

    expect(fetched).toHaveBeenCalledTimes(queries.length);
  });

  it.each([
    ["", 1440],
    ["/metrics", 1920],
    ["/metrics?pin=loss", 1100],
    ["", 800],
    ["", 400],
    ["/metrics?x=time", 1440],
    ["/metrics?from=10&to=20", 1440],
    ["/metrics?wide=loss", 1440],
  ])(
    "a run's metrics at %s in a window of %d: nothing is asked twice, and curves only where they are those shown",
    async (tab, width) => {
      vi.stubGlobal("innerWidth", width);
      const asked = start(`/runs/${RUN}${tab}`);
      const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
      const view = metricsSearch(parseSearch(window.location.search));

      await client.prefetchQuery(runQuery(RUN));
      await metricsAhead(client, RUN, view);

      const later = fetched.mock.calls
        .slice(asked.length)
        .map(([request]) => new URL((request as Request).url).search);
      expect(asked).toHaveLength(/[?].*(x|from|wide)=/.test(tab) ? 3 : 4);
      expect(later.map((search) => search.includes("first=12"))).toEqual(asked.length === 3 ? [true] : []);
    },
  );

  it("gives each group its names, of which none is asked for again", async () => {
    const items = ["loss", "train/a", "train/b"].map((name) => ({ name }));
    const groups = [
      { group: "", names: 1 },
      { group: "train", names: 2 },
    ];
    answerWith({ "/groups": { groups, total: 3, complete: true }, "/names": { items, next: null } });
    const cache = client();

    await metricsAhead(cache, RUN, {});

    const names = (group: string) =>
      cache
        .getQueryData(metricNamesQuery(RUN, undefined, group).queryKey)
        ?.pages.flatMap((page) => page.items.map(({ name }) => name));
    expect([names(""), names("train")]).toEqual([["loss"], ["train/a", "train/b"]]);
    expect(paths().filter((path) => path.includes("group="))).toEqual([]);
  });

  it("leaves a chart the newer curve that it asked for itself", async () => {
    vi.useFakeTimers();
    const cache = client();
    const range = rangeOf({}, 1000);
    const { queryKey } = curvesQuery(cache, RUN, ["loss"], range);
    const { answer } = answerLater("first=12");
    const first = cache.prefetchQuery(firstCurvesQuery(cache, RUN, range, 12));
    await vi.advanceTimersByTimeAsync(1);
    cache.setQueryData(queryKey, []);

    answer(Response.json({ series: [{ name: "loss", points: POINTS, unit: "" }], gaps: [], began: null }));
    await first;

    expect(cache.getQueryData(queryKey)).toEqual([]);
  });

  it("keeps no answer for a question of later", async () => {
    start(`/runs/${RUN}`);
    await firstPage({ load: async () => undefined });
    await client().prefetchQuery(runQuery(RUN));

    expect(paths().filter((path) => path.endsWith(RUN))).toHaveLength(2);
  });

  it("gives each answer once, so that asking again is asking again", async () => {
    start("/");
    const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
    await client.prefetchQuery(overviewQuery);
    await client.prefetchQuery({ ...overviewQuery, staleTime: 0 });

    expect(fetched).toHaveBeenCalledTimes(2);
  });

  it.each(["/login", "/runs", "/jobs/digits", `/runs/${RUN}/metrics?q=loss`, `/compare?runs=${RUN}`])(
    "%s: no answer that another question would need",
    (address) => {
      expect(start(address).filter((path) => !path.endsWith(RUN))).toEqual([]);
    },
  );
});
