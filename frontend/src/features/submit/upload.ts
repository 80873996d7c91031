import { api, body, EXACT } from "@/api/client";
import { isApiError } from "@/api/errors";
import type { Bundle, BundleUpload } from "@/api/schema";

/** A larger zip is sent piece by piece, as the SDK does, and continues where a connection broke. */
export const WHOLE_BYTES = 2 ** 20;
/** Short enough that what is told of it moves; what broke off is kept whatever its length. */
export const PIECE_BYTES = 2 * 2 ** 20;
const TRIES = 5;
const FIRST_WAIT_MS = 200;
const PASSING = new Set(["unreachable", "conflict", "rate_limited", "unavailable"]);

/** How much of a zip the server has. */
export interface Sent {
  received: number;
  size: number;
}

export function isSending(sent: Sent | null): sent is Sent {
  return sent !== null && sent.received < sent.size;
}

/** Brings a zip to the server, and tells how far it is. Without `crypto.subtle` (plain http elsewhere) in one request. */
export async function uploadZip(
  file: File,
  signal: AbortSignal,
  tell: (sent: Sent) => void,
): Promise<Bundle> {
  if (file.size <= WHOLE_BYTES || !crypto.subtle) return uploadWhole(file, "application/zip", {}, signal);
  const path = { sha256: await digestOf(file) };
  let known: BundleUpload | null = null;
  for (let failures = 0; ; ) {
    try {
      known ??= await body(api.GET("/api/v1/bundles/{sha256}/upload", { params: { path }, signal }));
      if (known.bundle) return known.bundle;
      tell({ received: known.received_bytes, size: file.size });
      known = await sendPiece(file, path.sha256, known.received_bytes, signal);
      failures = 0;
    } catch (error) {
      failures += 1;
      if (signal.aborted || failures === TRIES || !isPassing(error)) throw error;
      await quiet(FIRST_WAIT_MS * 2 ** failures);
      known = null; // what came of the piece counts
    }
  }
}

/** Stores a program by one request. */
export function uploadWhole(
  content: File | string,
  type: string,
  query: { filename?: string },
  signal: AbortSignal,
): Promise<Bundle> {
  return body(
    api.POST("/api/v1/bundles", {
      params: { query },
      headers: { "Content-Type": type },
      // The generated type takes text only; fetch takes the file itself.
      body: content as string,
      bodySerializer: (same) => same,
      signal,
      ...EXACT,
    }),
  );
}

function sendPiece(file: File, sha256: string, offset: number, signal: AbortSignal): Promise<BundleUpload> {
  return body(
    api.PATCH("/api/v1/bundles/{sha256}/upload", {
      params: { path: { sha256 }, query: { offset, size: file.size } },
      headers: { "Content-Type": "application/octet-stream" },
      body: file.slice(offset, offset + PIECE_BYTES) as unknown as string,
      bodySerializer: (same) => same,
      signal,
      ...EXACT,
    }),
  );
}

async function digestOf(file: File): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
  return `sha256:${Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

function isPassing(error: unknown): boolean {
  return isApiError(error) && PASSING.has(error.code);
}

function quiet(ms: number): Promise<void> {
  return new Promise((resolve) => window.setTimeout(resolve, ms));
}
