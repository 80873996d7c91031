import { useQueries, useQuery } from "@tanstack/react-query";
import { keys } from "@/api/queries";
import { LineText } from "@/components/ui/line-text";
import { attemptsQuery, fetchLogs, type SteadyRun } from "../queries";
import { stacksIn } from "./stacks-in";

const TAIL_BYTES = 524_288;

/** What each process of a run that hung was doing: who has not arrived stands in the reason, where it is stands here. */
export function Stacks({ run }: { run: SteadyRun }) {
  const attempts = useQuery(attemptsQuery(run.id));
  const members = attempts.data?.[0]?.members ?? [];
  const found = useQueries({
    queries: members.map((member) => ({
      queryKey: [...keys.run(run.id), "stacks", member.id],
      queryFn: async ({ signal }: { signal: AbortSignal }) => {
        const logs = await fetchLogs(
          run.id,
          { from: -TAIL_BYTES, limit: TAIL_BYTES, member: member.id },
          signal,
        );
        return stacksIn(logs.segments);
      },
    })),
  });
  return (
    <div className="mt-2 flex flex-col gap-1" data-testid="run-stacks">
      {members.map((member, at) => (
        <MemberStacks
          key={member.id}
          name={
            members.length > 1
              ? `rank ${member.rank} on ${member.host_name}`
              : `the process on ${member.host_name}`
          }
          open={at === 0}
          text={found[at]?.data}
        />
      ))}
    </div>
  );
}

/** Folded but for the first; nothing while it loads. */
function MemberStacks({
  name,
  text,
  open,
}: {
  name: string;
  text: string | null | undefined;
  open: boolean;
}) {
  if (text === undefined) return null;
  if (text === null) return <p className="text-muted text-xs">No stacks came from {name}.</p>;
  return (
    <details open={open}>
      <summary className="cursor-pointer text-muted text-xs">Stacks of {name}</summary>
      <StacksText label={`Stacks of ${name}`} text={text} />
    </details>
  );
}

/** Lines of stacks in a box that scrolls. */
export function StacksText({ text, label }: { text: string; label: string }) {
  return (
    <pre
      className="mt-1 max-h-80 overflow-auto border-line border-y px-3 py-2 text-xs leading-[18px]"
      title={label}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
      tabIndex={0}
    >
      {text.split("\n").map((line, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the lines of one text stay as they are
        <div className="min-h-[18px]" key={at}>
          <LineText text={line} />
        </div>
      ))}
    </pre>
  );
}
