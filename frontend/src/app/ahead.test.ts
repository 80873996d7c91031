// @vitest-environment happy-dom
// The script and the client ask for paths below the address of the page.
import { readFileSync } from "node:fs";
import { QueryClient } from "@tanstack/react-query";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { overviewQuery, runQuery } from "@/api/queries";
import { batchRunsQuery } from "@/features/compare/queries";
import { metricsSearch } from "@/features/run/search";
import { parseSearch } from "@/lib/search-params";
import { metricsAhead } from "./ahead";

const START = readFileSync("src/start.js", "utf8");
const RUN = "run_01JD0000000000000000000000";
const BATCH = "bat_01JD0000000000000000000000";

const fetched = vi.fn<(request: Request | string) => Promise<Response>>(async () =>
  Response.json({ groups: [], items: [], series: [] }),
);

/** Runs the script as a page of this address does. */
function start(address: string): string[] {
  window.history.replaceState(null, "", address);
  // A script of its own, which has no exports to import.
  new Function(START)();
  return fetched.mock.calls.map(([request]) => String(request));
}

describe("what is asked ahead", () => {
  beforeEach(() => {
    fetched.mockClear();
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
