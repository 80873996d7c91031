import { QueryClient, QueryClientProvider, useQuery } from "@tanstack/react-query";
import { act, cleanup, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { keys, runQuery } from "@/api/queries";
import type { Run } from "@/api/schema";
import { runEndedQuery, steadyRunQuery } from "./queries";

const ID = "run_a";
const RUN = { id: ID, state: "RUNNING", hosts: ["host-a"], progress: { step: 1 } } as unknown as Run;

describe("a run's progress", () => {
  let client: QueryClient;
  let renders: { steady: number; ended: number };
  beforeEach(() => {
    client = new QueryClient({ defaultOptions: { queries: { staleTime: Number.POSITIVE_INFINITY } } });
    client.setQueryData(keys.run(ID), RUN);
    renders = { steady: 0, ended: 0 };
    render(
      <QueryClientProvider client={client}>
        <Steady />
        <Ended />
        <Step />
      </QueryClientProvider>,
    );
  });
  afterEach(cleanup);

  function Steady() {
    renders.steady += 1;
    return <p>{useQuery(steadyRunQuery(ID)).data?.state}</p>;
  }
  function Ended() {
    renders.ended += 1;
    return <p>{useQuery(runEndedQuery(ID)).data ? "ended" : "live"}</p>;
  }
  function Step() {
    return <p>step {useQuery(runQuery(ID)).data?.progress.step}</p>;
  }
  const change = (part: Partial<Run>) =>
    act(async () => {
      client.setQueryData<Run>(keys.run(ID), (run) => run && { ...run, ...part });
    });

  it("renders only what shows it", async () => {
    await change({ progress: { ...RUN.progress, step: 2 } });
    await screen.findByText("step 2");
    expect(renders).toEqual({ steady: 1, ended: 1 });
  });

  it("hides no change of the rest", async () => {
    await change({ state: "SUCCEEDED" });
    await screen.findByText("SUCCEEDED");
    await screen.findByText("ended");
    expect(renders).toEqual({ steady: 2, ended: 2 });
  });
});
