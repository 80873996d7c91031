import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { isTerminal } from "@/api/states";
import { flawOf } from "@/components/runs/run-facts";
import { Waiting } from "@/components/runs/waiting";
import { Button } from "@/components/ui/button";
import { CopyButton } from "@/components/ui/copy-button";
import { CopyMenu } from "@/components/ui/copy-menu";
import { StateBadge } from "@/components/ui/state-badge";
import { shortId } from "@/lib/format";
import type { SteadyRun } from "../queries";
import { CancelRun } from "./cancel-run";
import { DeleteRun } from "./delete-run";
import { Failure } from "./failure";
import { Figures } from "./figures";
import { FirstNonFinite } from "./first-non-finite";
import { LiveStacks } from "./live-stacks";
import { Note, Star } from "./marks";
import { NotifyMe } from "./notify-me";
import { Particulars } from "./particulars";
import { RunAgain } from "./run-again";
import { RunWarnings } from "./run-warnings";
import { stateSentence } from "./sentence";
import { SilentHosts } from "./silent-hosts";
import { reachRun } from "./snippets";
import { StragglerNote } from "./straggler";

export function RunHeader({ run }: { run: SteadyRun }) {
  const [deleting, setDeleting] = useState(false);
  return (
    <header className="flex flex-col gap-4" data-testid="run-header">
      <div className="flex flex-wrap items-start gap-x-4 gap-y-2">
        <div className="min-w-0 flex-1">
          <h1 className="flex flex-wrap items-baseline gap-x-3 text-lg">
            <Link
              className="truncate hover:underline"
              params={{ name: run.job }}
              search={{ v: run.version }}
              to="/jobs/$name"
            >
              {run.job}
            </Link>
            <span className="font-normal text-muted text-sm">version {run.version}</span>
            <code className="font-normal text-muted text-sm" title={run.id}>
              {shortId(run.id)}
            </code>
            <Star run={run} />
          </h1>
          <div className="mt-1 flex flex-wrap items-center gap-x-3 gap-y-1">
            <span data-state={run.state} data-testid="run-state">
              <StateBadge flaw={flawOf(run)} state={run.state} />
            </span>
            <span className="text-muted" data-testid="run-reason">
              {stateSentence(run)}
            </span>
            <Note run={run} />
          </div>
        </div>
        <div className="flex flex-wrap items-center gap-2 max-sm:w-full">
          <span className="max-sm:hidden">
            <CopyButton label="Copy link" text={() => window.location.href} />
          </span>
          {!isTerminal(run.state) && <NotifyMe runId={run.id} />}
          <CopyMenu choices={reachRun(run, window.location.origin)} label="Copy as" />
          <RunAgain run={run} />
          {isTerminal(run.state) ? (
            <Button compact disabled={deleting} look="danger" onClick={() => setDeleting(true)}>
              Delete
            </Button>
          ) : (
            <CancelRun run={run} />
          )}
        </div>
      </div>
      {deleting && <DeleteRun onClose={() => setDeleting(false)} run={run} />}
      {run.why && !isTerminal(run.state) && <Waiting why={run.why} />}
      <RunWarnings run={run} />
      <FirstNonFinite run={run} />
      <StragglerNote run={run} />
      {run.hosts.length > 0 && !isTerminal(run.state) && <SilentHosts run={run} />}
      <Figures runId={run.id} />
      {run.state === "RUNNING" && <LiveStacks runId={run.id} />}
      {run.state === "FAILED" && <Failure run={run} />}
      <Particulars run={run} />
    </header>
  );
}
