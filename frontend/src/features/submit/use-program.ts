import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api, body, EXACT } from "@/api/client";
import type { Bundle } from "@/api/schema";
import type { Draft, KeptProgram } from "./draft";
import { type Sent, uploadWhole, uploadZip } from "./upload";

const QUIET_MS = 900;

/** The program that is submitted: the text of one Python file, a zip as it was chosen, or what the server has already. */
export type Program =
  | { kind: "text"; filename: string; source: string }
  | { kind: "zip"; file: File }
  | { kind: "kept"; kept: KeptProgram };
type NewProgram = Exclude<Program, { kind: "kept" }>;

/** What the form stands for; a zip lives as long as the page. */
export function programOf({ filename, source, keptProgram }: Draft, zip: File | null): Program {
  if (zip) return { kind: "zip", file: zip };
  return keptProgram ? { kind: "kept", kept: keptProgram } : { kind: "text", filename, source };
}

export function filenameOf(program: Program): string {
  if (program.kind === "kept") return program.kept.job;
  return program.kind === "zip" ? program.file.name : program.filename || "program.py";
}

/**
 * Uploads the program once it has been quiet for a moment, and says what the server found in it. Bundles are stored by
 * content, so that uploading the same again is nothing new; the submission then only names it. A kept program is only
 * looked up.
 */
export function useProgram(program: Program) {
  const settled = useSettled(program, QUIET_MS);
  const [sent, setSent] = useState<Sent | null>(null);
  const empty = settled.kind === "text" && settled.source.trim() === "";
  const query = useQuery({
    queryKey: ["upload", ...identity(settled)],
    queryFn: ({ signal }) => {
      setSent(null);
      return settled.kind === "kept"
        ? bundleOf(settled.kept.bundle, signal)
        : upload(settled, signal, setSent);
    },
    enabled: !empty,
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  });
  const behind = identity(settled).join() !== identity(program).join();
  return {
    ...query,
    bundle: behind ? undefined : query.data,
    checking: behind || query.isFetching,
    empty,
    sent: behind ? null : sent,
  };
}

function upload(program: NewProgram, signal: AbortSignal, tell: (sent: Sent) => void): Promise<Bundle> {
  if (program.kind === "zip") return uploadZip(program.file, signal, tell);
  return uploadWhole(program.source, "text/x-python", { filename: filenameOf(program) }, signal);
}

function bundleOf(sha256: string, signal?: AbortSignal): Promise<Bundle> {
  return body(
    api.GET("/api/v1/bundles/{sha256}", {
      params: { path: { sha256 } },
      ...(signal && { signal }),
      ...EXACT,
    }),
  );
}

/** A stored program's only file as text; null where it has several. */
export async function sourceOf(sha256: string): Promise<{ filename: string; source: string } | null> {
  if ((await bundleOf(sha256)).files !== 1) return null;
  const { files } = await body(api.GET("/api/v1/bundles/{sha256}/source", { params: { path: { sha256 } } }));
  const [only] = Object.entries(files);
  return only ? { filename: only[0], source: only[1] } : null;
}

export async function runOf(id: string) {
  return body(api.GET("/api/v1/runs/{run_id}", { params: { path: { run_id: id } }, ...EXACT }));
}

export async function versionOf(name: string, number: number) {
  return body(api.GET("/api/v1/jobs/{name}/versions/{number}", { params: { path: { name, number } } }));
}

function identity(program: Program): string[] {
  if (program.kind === "text") return ["text", program.filename, program.source];
  if (program.kind === "kept") return ["kept", program.kept.bundle];
  const { name, size, lastModified } = program.file;
  return ["zip", name, String(size), String(lastModified)];
}

function useSettled(program: Program, quietMs: number): Program {
  const [settled, setSettled] = useState(program);
  useEffect(() => {
    const timer = window.setTimeout(() => setSettled(program), quietMs);
    return () => window.clearTimeout(timer);
  }, [program, quietMs]);
  return settled;
}
