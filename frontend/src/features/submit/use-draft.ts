import { useEffect, useState } from "react";
import type { JobVersion, Run } from "@/api/schema";
import { type Draft, EMPTY_DRAFT, jobNameOf, loadDraft, saveDraft } from "./draft";
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

/** What a program brings with it: a new file, its name, and none of the old one's parameters. */
export function programPart(filename: string, source: string): Partial<Draft> {
  return { filename, source, jobName: jobNameOf(filename), entrypoint: "", parameters: {} };
}

function withExample(draft: Draft): Draft {
  const [first] = EXAMPLES;
  if (draft.source.trim() !== "" || !first) return draft;
  return { ...draft, ...programPart(first.filename, first.source) };
}

async function cloneOfRun(id: string): Promise<Draft> {
  const run = await runOf(id);
  return { ...(await cloneOfSpec(run.spec)), ...optionsOf(run) };
}

async function cloneOfVersion(job: string, number: number): Promise<Draft> {
  return cloneOfSpec(await versionOf(job, number));
}

/** What a version of a job says itself; the rest is as the form begins. */
async function cloneOfSpec(spec: JobVersion): Promise<Draft> {
  const program = await sourceOf(spec.program.bundle);
  if (!program)
    throw new Error("This program has several files; upload its zip again to submit it with changes.");
  const { strategy, checkpoint } = spec;
  return {
    ...EMPTY_DRAFT,
    ...program,
    jobName: spec.job,
    entrypoint: spec.program.entrypoint,
    strategy: strategy.kind,
    ...(strategy.kind === "mirrored" && { batch: strategy.batch }),
    ...(strategy.kind !== "one_device" && { executor: strategy.executor }),
    ...(strategy.kind === "central_storage" && { parameterDevice: strategy.parameter_device ?? "" }),
    checkpointEvery: checkpoint.every_steps == null ? "" : String(checkpoint.every_steps),
  };
}

function optionsOf(run: Run): Partial<Draft> {
  return {
    parameters: Object.fromEntries(
      Object.entries(run.parameters).map(([name, value]) => [
        name,
        typeof value === "string" ? value : JSON.stringify(value),
      ]),
    ),
    replicas: String(run.resources.replicas),
    platform: run.resources.platform,
    waitForDevices: run.wait_for_devices,
    runLimit: run.limits.run_s == null ? "" : String(run.limits.run_s),
    stepLimit: run.limits.step_s == null ? "" : String(run.limits.step_s),
    firstStepLimit: run.limits.first_step_s == null ? "" : String(run.limits.first_step_s),
    queueLimit: run.limits.queue_s == null ? "" : String(run.limits.queue_s),
    grace: String(run.limits.grace_s),
    userRetries: String(run.retries.user),
    priority: String(run.priority),
    resumeFrom: run.resume_from ?? "",
    labels: Object.entries(run.labels)
      .map(([name, value]) => `${name}=${value}`)
      .join(" "),
  };
}
