import { useEffect, useState } from "react";
import type { JobVersion } from "@/api/schema";
import { draftOfRun, draftOfVersion } from "./clone";
import { type Draft, jobNameOf, loadDraft, saveDraft } from "./draft";
import { EXAMPLES } from "./examples";
import type { submitSearch } from "./search";
import { runOf, sourceOf, versionOf } from "./use-program";

const SAVE_MS = 400;

/** The form's draft, kept in this browser; with `from` or a version it begins as that, to go on from the checkpoint `resume`. */
export function useDraft({ from, resume, job, v }: ReturnType<typeof submitSearch>) {
  const [draft, setDraft] = useState<Draft>(() => withExample(loadDraft()));
  const [cloning, setCloning] = useState<{ error: unknown } | null>(null);
  useEffect(() => {
    const timer = window.setTimeout(() => saveDraft(draft), SAVE_MS);
    return () => window.clearTimeout(timer);
  }, [draft]);
  useEffect(() => {
    const cloned = from ? cloneOfRun(from) : job && v ? cloneOfVersion(job, v) : null;
    if (!cloned) return;
    let dropped = false;
    cloned.then(
      (clone) => !dropped && setDraft(resume ? { ...clone, resumeFrom: resume } : clone),
      (error: unknown) => !dropped && setCloning({ error }),
    );
    return () => {
      dropped = true;
    };
  }, [from, resume, job, v]);
  const change = (part: Partial<Draft>) => setDraft((old) => ({ ...old, ...part }));
  return { draft, change, cloneError: cloning?.error ?? null };
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
