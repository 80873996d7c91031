import type { Problem } from "./schema";

/** Any call that did not succeed: the server's problem document, or the fact that it could not be reached. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly hint: string;
  readonly requestId: string;
  readonly fields: readonly { field: string; message: string }[];
  readonly context: Readonly<Record<string, unknown>>;

  constructor(problem: Partial<Problem> & { status: number; code: string; title: string; detail: string }) {
    super(problem.detail);
    this.name = "ApiError";
    this.status = problem.status;
    this.code = problem.code;
    this.title = problem.title;
    this.hint = problem.hint ?? "";
    this.requestId = problem.request_id ?? "";
    this.fields = problem.errors ?? [];
    this.context = problem.context ?? {};
  }

  /** The message for one field of the request; `job.name` also answers for `body.job.name`. */
  field(name: string): string | undefined {
    return this.fields.find(({ field }) => field === name || field.endsWith(`.${name}`))?.message;
  }
}

export function isApiError(error: unknown, code?: string): error is ApiError {
  return error instanceof ApiError && (code === undefined || error.code === code);
}

/** The error of an answer that is not a success, whatever its body is. */
export async function errorOf(response: Response): Promise<ApiError> {
  const body: unknown = await response.json().catch(() => null);
  if (isProblem(body)) return new ApiError(body);
  return new ApiError({
    status: response.status,
    code: response.status >= 500 ? "unavailable" : "unexpected_answer",
    title: response.status >= 500 ? "The server had a fault" : "Unexpected answer",
    detail: `${response.status} ${response.statusText}`.trim(),
    hint: "Try again; if it stays, look at the server's log.",
    request_id: response.headers.get("x-request-id") ?? "",
  });
}

/** The error of a request that got no answer. */
export function unreachable(): ApiError {
  return new ApiError({
    status: 0,
    code: "unreachable",
    title: "The server does not answer",
    detail: "No connection to the Drumline server.",
    hint: "Is it running? Start it with: drumline up",
  });
}

function isProblem(body: unknown): body is Problem {
  return (
    typeof body === "object" &&
    body !== null &&
    "status" in body &&
    "code" in body &&
    "title" in body &&
    "detail" in body &&
    typeof body.detail === "string"
  );
}
