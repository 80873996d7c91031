import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import type { JobVersion } from "@/api/schema";
import { draftOfRun, draftOfVersion } from "./clone";
import { type Draft, jobNameOf, loadDraft, saveDraft } from "./draft";
import { EXAMPLES } from "./examples";
import type { submitSearch } from "./search";
import { runOf, sourceOf, versionOf } from "./use-program";

const SAVE_MS = 400;

type Search = ReturnType<typeof submitSearch>;

/**
 * What the form begins with: with `from` or a version that one's program and options, to resume from the checkpoint
 * `resume`. Undefined while it is on its way, null where the form continues with the draft kept in this browser.
 */
export function useClone({ from, resume, job, v }: Search): {
  clone: Draft | null | undefined;
  error: unknown;
} {
  const wanted = Boolean(from || (job && v));
  const { data, error } = useQuery({
    queryKey: ["clone", from, job, v],
    queryFn: () => (from ? cloneOfRun(from) : cloneOfVersion(job ?? "", v ?? 0)),
    enabled: wanted,
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (!wanted || (error && !data)) return { clone: null, error };
  return { clone: data && resume ? { ...data, resumeFrom: resume } : data, error: null };
}

/** The form's draft, kept in this browser, that began as `clone`. */
export function useDraft(clone: Draft | null) {
  const [draft, setDraft] = useState<Draft>(() => clone ?? withExample(loadDraft()));
  useEffect(() => {
    const timer = window.setTimeout(() => saveDraft(draft), SAVE_MS);
    return () => window.clearTimeout(timer);
  }, [draft]);
  const change = (part: Partial<Draft>) => setDraft((old) => ({ ...old, ...part }));
  return { draft, change };
}

/** What a program brings with it: a new file, its name, and none of what the old one had. */
export function programPart(filename: string, source: string): Partial<Draft> {
  return {
    filename,
    source,
    keptProgram: null,
    jobName: jobNameOf(filename),
    entrypoint: "",
    parameters: {},
  };
}

function withExample(draft: Draft): Draft {
  const [first] = EXAMPLES;
  if (draft.source.trim() !== "" || draft.keptProgram || !first) return draft;
  return { ...draft, ...programPart(first.filename, first.source) };
}

async function cloneOfRun(id: string): Promise<Draft> {
  const run = await runOf(id);
  return draftOfRun(run, await clonedProgramOf(run.spec));
}

async function cloneOfVersion(job: string, number: number): Promise<Draft> {
  const version = await versionOf(job, number);
  return draftOfVersion(version, await clonedProgramOf(version));
}

async function clonedProgramOf({ program: { bundle }, job, number }: JobVersion) {
  return (await sourceOf(bundle)) ?? { keptProgram: { bundle, job, version: number } };
}
