import { getRouteApi, useLocation } from "@tanstack/react-router";
import { useState } from "react";
import type { Attempt } from "@/api/schema";
import { isTerminal } from "@/api/states";
import { EmptyState, ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { GapNote } from "../gap-note";
import type { SteadyRun } from "../queries";
import { LineWindow } from "./line-window";
import { momentOf } from "./local-time";
import { LogToolbar } from "./log-toolbar";
import { extendRange, formatRange, type LineRange, parseRange } from "./range";
import { SelectionBar } from "./selection-bar";
import { useLog } from "./use-log";

const route = getRouteApi("/runs/$runId/logs");

interface LogViewerProps {
  run: SteadyRun;
  attempts: readonly Attempt[];
  attempt: string | undefined;
  member: string | undefined;
}

export function LogViewer({ run, attempts, attempt, member }: LogViewerProps) {
  const { wrap = false, find = "", regex = false, level, stream, ...time } = route.useSearch();
  const since = momentOf(time.since);
  const until = momentOf(time.until);
  const navigate = route.useNavigate();
  const hash = useLocation({ select: (location) => location.hash });
  const range = parseRange(hash);
  const { loader, revision } = useLog(run, attempt, member);
  const [follow, setFollow] = useState(range === null);
  const [goal, setGoal] = useState<{ line: number } | null>(range && { line: range.from });
  const [shownAt] = useState(() => Date.now());
  const goTo = (line: number) => {
    setFollow(false);
    setGoal({ line });
  };
  const select = (next: LineRange | null) =>
    void navigate({
      search: (old) => old,
      hash: next ? formatRange(next) : "",
      replace: true,
      resetScroll: false,
      hashScrollIntoView: false,
    });
  if (!loader.started) {
    return loader.error ? (
      <ErrorState error={loader.error} onRetry={() => loader.refresh()} what="The log could not be loaded" />
    ) : (
      <SkeletonRows label="the log" rows={10} />
    );
  }
  return (
    <div className="flex min-h-0 flex-1 flex-col" data-testid="log">
      <GapNote runId={run.id} what="log" />
      {loader.error !== null && <StaleBanner error={loader.error} since={shownAt} />}
      <LogToolbar
        attempt={attempt}
        attempts={attempts}
        buffer={loader.buffer}
        find={find}
        goTo={goTo}
        level={level}
        member={member}
        regex={regex}
        revision={revision}
        runId={run.id}
        shown={loader.member}
        since={since}
        stream={stream}
        until={until}
        wrap={wrap}
      />
      {loader.buffer.lineCount === 0 ? (
        <EmptyState title={isTerminal(run.state) ? "The program wrote nothing." : "Nothing written yet."}>
          What the program prints to stdout and stderr appears here as it is written.
        </EmptyState>
      ) : (
        <LineWindow
          find={regex ? "" : find}
          follow={follow}
          goal={goal}
          loader={loader}
          onFollow={setFollow}
          onNumber={(line, stretch) => select(extendRange(range, line, stretch))}
          range={range}
          revision={revision}
          wrap={wrap}
        />
      )}
      {range && <SelectionBar loader={loader} onClear={() => select(null)} range={range} />}
    </div>
  );
}
