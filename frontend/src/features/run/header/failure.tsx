import { useQuery } from "@tanstack/react-query";
import { Link, useMatchRoute } from "@tanstack/react-router";
import { keys } from "@/api/queries";
import { LineText } from "@/components/ui/line-text";
import { collapseReturns } from "@/lib/ansi";
import { fetchLogs, type SteadyRun } from "../queries";
import { Stacks } from "./stacks";

const TAIL_BYTES = 4_096;
/** Stacks stand after the program's own last lines. */
const HUNG_TAIL_BYTES = 65_536;
const TAIL_LINES = 12;

/** Why the run failed: what was seen, and the last lines that the program wrote. */
export function Failure({ run }: { run: SteadyRun }) {
  const hung = run.reason?.code === "HANG";
  // The tab has the whole log.
  const onLogs = useMatchRoute()({ to: "/runs/$runId/logs" }) !== false;
  const tail = useQuery({
    enabled: !onLogs,
    queryKey: [...keys.run(run.id), "log-tail"],
    queryFn: async ({ signal }) => {
      const bytes = hung ? HUNG_TAIL_BYTES : TAIL_BYTES;
      const logs = await fetchLogs(run.id, { from: -bytes, limit: bytes }, signal);
      const segments = hung ? logs.segments.filter(({ stream }) => stream !== "system") : logs.segments;
      return lastLines(segments.map((segment) => segment.text).join(""), logs.first_byte > 0);
    },
  });
  return (
    <div className="border-bad border-l-2 pl-4" data-testid="run-failure">
      {run.reason?.message && (
        // On a phone the header leaves room for what it heads.
        <p
          className="font-mono text-xs leading-5 max-sm:max-h-30 max-sm:overflow-y-auto"
          // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
          tabIndex={0}
        >
          <LineText text={run.reason.message} />
        </p>
      )}
      {hung && <Stacks run={run} />}
      {!onLogs && tail.data && tail.data.length > 0 && (
        <>
          <p className="mt-2 mb-1 flex items-baseline gap-3 text-muted text-xs">
            Last lines of the log
            <Link className="link" params={{ runId: run.id }} to="/runs/$runId/logs">
              Open the log
            </Link>
          </p>
          <pre
            className="max-h-60 overflow-auto max-sm:max-h-28 border-line border-y px-3 py-2 text-xs leading-[18px]"
            // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
            tabIndex={0}
          >
            {tail.data.map((line) => (
              <div key={line.at}>
                <LineText text={line.text} />
              </div>
            ))}
          </pre>
        </>
      )}
      {tail.data?.length === 0 && !hung && (
        <p className="text-muted text-xs">The program wrote nothing to its log.</p>
      )}
    </div>
  );
}

/** The last lines of a piece of output; the first is left out where the piece begins inside it. */
function lastLines(text: string, cut: boolean): { at: number; text: string }[] {
  const lines = text.replace(/\n$/, "").split("\n");
  const whole = cut ? lines.slice(1) : lines;
  return whole
    .filter((line, at) => at > 0 || line !== "")
    .map((line, at) => ({ at, text: collapseReturns(line) }))
    .slice(-TAIL_LINES);
}
