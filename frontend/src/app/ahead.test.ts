// @vitest-environment happy-dom
// The script and the client ask for paths below the address of the page.
import { readFileSync } from "node:fs";
import { QueryClient } from "@tanstack/react-query";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { overviewQuery, runQuery } from "@/api/queries";
import { batchRunsQuery } from "@/features/compare/queries";
import { metricGroupsQuery } from "@/features/run/queries";

const START = readFileSync("public/start.js", "utf8");
const RUN = "run_01JD0000000000000000000000";
const BATCH = "bat_01JD0000000000000000000000";

const fetched = vi.fn<(request: Request | string) => Promise<Response>>(
  async () => new Response("{}", { headers: { "content-type": "application/json" } }),
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
    [`/runs/${RUN}/metrics`, [runQuery(RUN), metricGroupsQuery(RUN, undefined, true)]],
    [`/runs/${RUN}`, [runQuery(RUN), metricGroupsQuery(RUN, undefined, true)]],
    [`/runs/${RUN}/logs`, [runQuery(RUN)]],
    [`/compare?batch=${BATCH}`, [batchRunsQuery(BATCH)]],
  ])("%s: its first questions, which the page then does not ask again", async (address, queries) => {
    expect(start(address)).toHaveLength(queries.length);

    const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
    for (const query of queries)
      await client.prefetchQuery<unknown, Error, unknown, readonly unknown[]>(query as never);

    expect(fetched).toHaveBeenCalledTimes(queries.length);
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
