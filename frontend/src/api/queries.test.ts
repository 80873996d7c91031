// @vitest-environment happy-dom
// Requests are relative to the address of the page.

import { QueryClient } from "@tanstack/react-query";
import { afterEach, expect, it, vi } from "vitest";
import { outcomesQuery } from "@/features/batches/queries";
import { detailsQuery } from "@/features/compare/queries";
import { diffQuery } from "@/features/jobs/queries";
import { cancelRun, patchRun } from "@/features/run/queries";
import { groupsQuery } from "@/features/runs/queries";
import { runOf } from "@/features/submit/use-program";
import { exactText } from "@/lib/wire-numbers";
import { runQuery, runsQuery } from "./queries";

const BIG = 1152921504606846977n;
const RUN = `{"id":"run_a","last_event":12345678901234567890,"note":"of 1152921504606846976, \\"-9007199254740993\\"",
"parameters":{"seed":1152921504606846977},"spec":{"defaults":{"seed":1152921504606846977}},
"result":{"n":1152921504606846976,"m":[-9007199254740993,9007199254740991,1.5,1e300,"1152921504606846977"]},
"summary":{"big":18446744073709551615,"loss":0.25}}`;

function answerWith(text: string) {
  vi.stubGlobal(
    "fetch",
    vi.fn(async () => new Response(text, { headers: { "Content-Type": "application/json" } })),
  );
}
const client = () => new QueryClient();

afterEach(() => vi.unstubAllGlobals());

it("keeps the whole numbers of a run's program, beyond those of a float", async () => {
  answerWith(RUN);
  const run = await client().fetchQuery(runQuery("run_a"));

  expect(exactText(run.result)).toBe(
    '{"n":1152921504606846976,"m":[-9007199254740993,9007199254740991,1.5,1e+300,"1152921504606846977"]}',
  );
  expect(String(run.summary?.big)).toBe("18446744073709551615");
  expect(run.summary?.loss).toBe(0.25);
  expect(run.parameters.seed).toBe(BIG);
  expect(run.spec.defaults?.seed).toBe(BIG);
});

it("leaves numbers of the server ones to count with", async () => {
  answerWith(RUN);
  const run = await client().fetchQuery(runQuery("run_a"));

  expect(typeof run.last_event).toBe("number");
  expect(run.note).toBe('of 1152921504606846976, "-9007199254740993"');
});

it.each([
  ["a list of runs", () => client().fetchInfiniteQuery(runsQuery({ column: ["params.seed"] })), "fields"],
  ["compared runs", () => client().fetchQuery(detailsQuery(["run_a"])), "parameters"],
  ["outcomes of a sweep", () => client().fetchQuery(outcomesQuery("bat_a", "index")), "metrics"],
  ["groups of runs", () => client().fetchQuery(groupsQuery("params.seed", "", false)), "value"],
  ["what changed in a version", () => client().fetchQuery(diffQuery("digits", 1, 2)), "old"],
  ["a run that is cancelled", () => cancelRun("run_a"), "result"],
  ["a run that is marked", () => patchRun("run_a", { starred: true }), "summary"],
  ["a run that is cloned", () => runOf("run_a"), "parameters"],
] as const)("keeps them in %s", async (_, ask, field) => {
  answerWith(`{"items":[{"${field}":{"seed":${BIG}}}],"total":${BIG}}`);

  const answer = exactText(await ask());

  expect(answer).toContain(`{"seed":${BIG}}`);
});
