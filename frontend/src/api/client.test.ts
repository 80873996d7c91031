// @vitest-environment happy-dom
// Requests are relative to the address of the page.

import { describe, expect, it, vi } from "vitest";
import { api, body, EXACT, idempotencyKey } from "./client";
import { ApiError } from "./errors";
import type { RunSubmit } from "./schema";

function answer(status: number, content: unknown, headers: Record<string, string> = {}) {
  const fetch = vi.fn<(request: Request) => Promise<Response>>(async () => {
    return new Response(typeof content === "string" ? content : JSON.stringify(content), { status, headers });
  });
  vi.stubGlobal("fetch", fetch);
  return fetch;
}

const problem = {
  type: "about:blank",
  title: "Unprocessable Content",
  status: 422,
  code: "too_many_replicas",
  detail: "The run needs 9 replicas on one host, but the largest host has 8 devices.",
  hint: "Ask for at most 8 replicas.",
  request_id: "req_1",
  errors: [{ field: "resources.replicas", message: "9 replicas, 8 devices" }],
  context: { replicas: 9, devices: 8 },
};

describe("the API client", () => {
  it("marks every request as ours and gives the body of a success", async () => {
    const fetch = answer(200, { version: "1" }, { "content-type": "application/json" });
    expect(await body(api.GET("/api/v1/version"))).toEqual({ version: "1" });
    expect(fetch.mock.calls[0]?.[0].headers.get("X-Drumline")).toBe("1");
  });

  it("sends and reads whole numbers beyond those of a float as they are", async () => {
    const fetch = answer(200, '{"run":{"parameters":{"seed":1152921504606846977}}}');
    const run = { parameters: { seed: 1152921504606846977n } } as unknown as RunSubmit;
    const params = { header: { "Idempotency-Key": "k" } };

    const made = await body(api.POST("/api/v1/runs", { params, body: run, ...EXACT }));

    expect(await fetch.mock.calls[0]?.[0].text()).toBe('{"parameters":{"seed":1152921504606846977}}');
    expect(made.run.parameters.seed).toBe(1152921504606846977n);
  });

  it("throws a problem with its code, hint, fields and request id", async () => {
    answer(422, problem, { "content-type": "application/problem+json" });
    const error = await body(api.GET("/api/v1/overview")).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({
      code: "too_many_replicas",
      status: 422,
      requestId: "req_1",
      message: problem.detail,
    });
    expect((error as ApiError).field("replicas")).toBe("9 replicas, 8 devices");
    expect((error as ApiError).field("limits.run_s")).toBeUndefined();
  });

  it("throws a typed error for an answer that is no problem document", async () => {
    answer(502, "<html>Bad Gateway</html>", { "x-request-id": "req_2" });
    await expect(body(api.GET("/api/v1/overview"))).rejects.toMatchObject({
      code: "unavailable",
      status: 502,
      requestId: "req_2",
    });
  });

  it("says that the server cannot be reached where there is no answer", async () => {
    vi.stubGlobal("fetch", vi.fn().mockRejectedValue(new TypeError("failed to fetch")));
    await expect(body(api.GET("/api/v1/overview"))).rejects.toMatchObject({ code: "unreachable", status: 0 });
  });

  it("makes a different key for each submission", () => {
    const keys = new Set(Array.from({ length: 100 }, idempotencyKey));
    expect(keys.size).toBe(100);
    expect([...keys][0]).toMatch(/^[0-9a-f]{32}$/);
  });
});
