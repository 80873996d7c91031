import { useMutation, useQuery } from "@tanstack/react-query";
import { isApiError } from "@/api/errors";
import { keys } from "@/api/queries";
import type { DispatchedProgram, MemberStacks, MemberStandingOutput as Standing } from "@/api/schema";
import { Button } from "@/components/ui/button";
import { formatBytes, formatDuration } from "@/lib/format";
import { askStacks, fetchStacks } from "../queries";
import { StacksText } from "./stacks";

const ASK_AGAIN_MS = 300;
/** Whoever has not answered by then is shown as silent; answers that come later are shown when asked again. */
const PATIENCE_MS = 6_000;

/** Where every process of a live run stands, once somebody asks: stacks, phase, last program and its collectives. */
export function LiveStacks({ runId }: { runId: string }) {
  const ask = useMutation({ mutationFn: () => askStacks(runId) });
  const asked = ask.data?.asked_at;
  const answers = useQuery({
    enabled: asked !== undefined,
    queryKey: [...keys.run(runId), "live-stacks", asked],
    queryFn: ({ signal }) => fetchStacks(runId, signal),
    initialData: ask.data,
    refetchInterval: (query) => {
      const since = ask.submittedAt === 0 ? 0 : Date.now() - ask.submittedAt;
      return query.state.data?.is_complete || since > PATIENCE_MS ? false : ASK_AGAIN_MS;
    },
  });
  const members = answers.data?.members ?? [];
  return (
    <section aria-label="Where its processes stand" className="flex flex-col gap-2">
      <div className="flex flex-wrap items-center gap-3">
        <Button compact disabled={ask.isPending} onClick={() => ask.mutate()}>
          {asked ? "Ask again" : "Where does it stand?"}
        </Button>
        <span className="text-muted text-xs">
          {asked
            ? `${members.filter((member) => member.standing).length} of ${members.length} answered`
            : "Stacks, phase and last program of every process; the program is not disturbed."}
        </span>
        {ask.error && (
          <span className="text-bad text-xs" role="alert">
            {isApiError(ask.error) ? ask.error.message : "Its processes could not be asked."}
          </span>
        )}
      </div>
      {asked && (
        <div className="flex flex-col gap-1" data-testid="live-stacks">
          {members.map((member, at) => (
            <MemberStanding key={member.member} member={member} open={at === 0 || members.length <= 2} />
          ))}
        </div>
      )}
    </section>
  );
}

const DOING: Record<Standing["activity"], string> = {
  rendezvous: "on its way to the rendezvous",
  own_code: "in the program's own code",
  compiling: "compiling",
  in_step: "in a step",
  finishing: "finishing",
  waiting_for_telemetry: "waiting until its telemetry is taken",
};

function MemberStanding({ member, open }: { member: MemberStacks; open: boolean }) {
  const name = `rank ${member.rank} on ${member.host_name}`;
  const standing = member.standing;
  if (!standing) {
    return (
      <p className="text-muted text-xs">
        {name}: {member.missing}
      </p>
    );
  }
  return (
    <details open={open}>
      <summary className="cursor-pointer text-xs">
        {name}: {DOING[standing.activity]}
        <span className="text-muted">
          , after {standing.advances} {standing.advances === 1 ? "step" : "steps"} or logs; nothing changed
          for {formatDuration(standing.idle_s)}
        </span>
      </summary>
      {standing.program && <LastProgram program={standing.program} step={standing.step ?? null} />}
      {standing.missing && <p className="mt-1 text-warn text-xs">{standing.missing}</p>}
      {standing.python && <StacksText label={`Stacks of ${name}`} text={standing.python} />}
      <details>
        <summary className="mt-1 cursor-pointer text-muted text-xs">Threads, by the kernel</summary>
        <StacksText label={`Threads of ${name}`} text={standing.threads ?? ""} />
      </details>
    </details>
  );
}

function LastProgram({ program, step }: { program: DispatchedProgram; step: number | null }) {
  const collectives = program.collectives ?? [];
  return (
    <div className="mt-1 text-xs">
      <p>
        Last dispatched{step === null ? "" : ` in step ${step}`}: <code>{program.name}</code>{" "}
        <span className="text-muted">
          {program.digest}, {program.executor}
          {collectives.length === 0 ? ", no collectives" : ""}
        </span>
      </p>
      <ol className="mt-1 list-decimal pl-6 text-muted">
        {collectives.map((each, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: the collectives of a program stay as they are
          <li key={at}>
            {each.kind} {each.op ?? ""} <code>{each.name}</code>: {each.dtype}[{each.shape.join(", ")}],{" "}
            {formatBytes(each.size_bytes)}
          </li>
        ))}
      </ol>
      {(program.more_collectives ?? 0) > 0 && (
        <p className="text-muted">and {program.more_collectives} more</p>
      )}
    </div>
  );
}
