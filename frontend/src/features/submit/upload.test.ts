// @vitest-environment happy-dom
// Requests are relative to the address of the page.

import { afterEach, expect, it, vi } from "vitest";
import { PIECE_BYTES, uploadZip, WHOLE_BYTES } from "./upload";

const BUNDLE = { sha256: "sha256:00", size_bytes: 1, files: 1, entrypoints: [] };

afterEach(() => vi.unstubAllGlobals());

/** A server that takes pieces; `breaks` names the request that gets no answer, after half of its bytes. */
function server(size: number, breaks = -1) {
  let received = 0;
  const requests: string[] = [];
  vi.stubGlobal("fetch", async (request: Request) => {
    const offset = new URL(request.url).searchParams.get("offset");
    requests.push(offset === null ? request.method : `${request.method} ${offset}`);
    const bytes = offset === null ? 0 : (await request.arrayBuffer()).byteLength;
    if (requests.length === breaks) {
      received += bytes / 2;
      throw new TypeError("no answer");
    }
    received += bytes;
    const bundle = received === size || request.method === "POST" ? BUNDLE : null;
    const answer =
      request.method === "POST" ? BUNDLE : { sha256: "sha256:00", received_bytes: received, bundle };
    return new Response(JSON.stringify(answer), { headers: { "Content-Type": "application/json" } });
  });
  return requests;
}

function zip(size: number) {
  return new File([new Uint8Array(size)], "big.zip");
}

it("sends a large zip piece by piece, and goes on where an answer was lost", async () => {
  const size = 2 * PIECE_BYTES + 10;
  const requests = server(size, 3);
  const told: number[] = [];
  const found = await uploadZip(zip(size), new AbortController().signal, ({ received }) =>
    told.push(received),
  );
  expect(found).toEqual(BUNDLE);
  const half = 1.5 * PIECE_BYTES;
  expect(requests).toEqual(["GET", "PATCH 0", `PATCH ${PIECE_BYTES}`, "GET", `PATCH ${half}`]);
  expect(told).toEqual([0, PIECE_BYTES, half]);
});

it("sends a small one in one request", async () => {
  const requests = server(WHOLE_BYTES);
  await uploadZip(zip(WHOLE_BYTES), new AbortController().signal, () => {});
  expect(requests).toEqual(["POST"]);
});
