import createClient, { type Middleware } from "openapi-fetch";
import { exactText, parseAnswer } from "@/lib/wire-numbers";
import { takeAhead } from "./ahead";
import { errorOf, isApiError, unreachable } from "./errors";
import type { paths } from "./schema";

/** The header that a page of another origin cannot send without asking: part of the server's CSRF defence. */
const CLIENT_HEADER = { "X-Drumline": "1" };

const throwProblems: Middleware = {
  async onResponse({ response }) {
    if (!response.ok) throw await errorOf(response);
  },
  onError({ error }) {
    if (isApiError(error)) return error;
    return error instanceof DOMException && error.name === "AbortError" ? error : unreachable();
  },
};

// fetch is looked up at each call, so that a test can stand in for the network.
export const api = createClient<paths>({
  baseUrl: globalThis.location?.origin ?? "",
  headers: CLIENT_HEADER,
  querySerializer: { array: { style: "form", explode: true } },
  bodySerializer: (sent) => exactText(sent),
  fetch: (request) => takeAhead(request) ?? globalThis.fetch(request),
});
api.use(throwProblems);

/**
 * Of every call whose answer has numbers of users (parameters, results, fields): `body` reads them exactly, also beyond 2^53,
 * where they are `bigint`s. The type is that of the other answers: only how the text is read differs.
 */
export const EXACT = { parseAs: "text" } as unknown as { parseAs?: "json" };

/** The body of a call that answers with one: `await body(api.GET("/api/v1/overview"))`. Throws ApiError otherwise. */
export async function body<T>(call: Promise<{ data?: T; response: Response }>): Promise<T> {
  const { data, response } = await call;
  if (data === undefined) throw await errorOf(response);
  return typeof data === "string" ? (parseAnswer(data) as T) : data;
}

/** A fresh Idempotency-Key. Not `crypto.randomUUID`, which plain http on another host does not have. */
export function idempotencyKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
