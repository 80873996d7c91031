import { useQuery } from "@tanstack/react-query";
import type { ReplicaTime, ReplicaTimes as Times } from "@/api/schema";
import { colorOf } from "@/components/ledger/names";
import { Icon } from "@/components/ui/icons";
import { ScrollBox } from "@/components/ui/scroll-box";
import { Section } from "@/components/ui/section";
import { ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { count, formatInteger } from "@/lib/format";
import { replicaTimesQuery } from "../queries";
import { formatMs } from "./arrival-times";

const HEADS = ["Replica", "Host", "A step", "Computes", "Collectives", "Idle", "Waited least"];
const COLORS = { computes: colorOf("steps"), collectives: colorOf("queue"), idle: "transparent" };

/** Which replica do the others wait for? */
export function ReplicaTimes({ runId, ended }: { runId: string; ended: boolean }) {
  const query = useQuery(replicaTimesQuery(runId, ended));
  const found = query.data;
  return (
    <Section note={found && noteOf(found)} title="Replicas in traced steps">
      {query.error && !found && (
        <ErrorState
          error={query.error}
          onRetry={() => void query.refetch()}
          what="The traced steps could not be loaded"
        />
      )}
      {query.error && found && <StaleBanner error={query.error} since={query.dataUpdatedAt} />}
      {query.isPending && <SkeletonRows label="the traced steps" rows={2} />}
      {found && (found.unmeasured ? <NotMeasured why={found.unmeasured} /> : <Measured found={found} />)}
    </Section>
  );
}

function noteOf({ steps, span_ms: span }: Times): string {
  if (steps.length === 0) return "";
  const over = `medians of the newest ${count(steps.length, "traced step")}`;
  return typeof span === "number" ? `${over}, of ${formatMs(span)}` : over;
}

function NotMeasured({ why }: { why: NonNullable<Times["unmeasured"]> }) {
  return (
    <p className="max-w-3xl py-3 text-muted">
      {why === "not_told" ? (
        "Not measured: the traces of this platform tell no operations of devices."
      ) : (
        <>
          Not measured: no step is traced yet. Submit with <code>record.profile_every</code> to see how long
          each replica computes and waits.
        </>
      )}
    </p>
  );
}

function Measured({ found }: { found: Times }) {
  const { slowest, steps, devices } = found;
  return (
    <div className="pt-3" data-testid="replica-times">
      <p className="mb-3 max-w-3xl text-pretty">
        {slowest ? (
          <span className="inline-flex items-center gap-1.5">
            <Icon className="shrink-0 text-warn" name="warning" size={14} />
            Replica {formatInteger(slowest.replica)} on {slowest.host_name} waited least in{" "}
            {formatInteger(slowest.waited_least)} of {count(steps.length, "step")}: the others wait up to{" "}
            {formatInteger(Math.round(slowest.gain_percent))} % of a step for it.
          </span>
        ) : (
          "No slow replica: none waits least in four of five traced steps at a cost of 10 % of a step."
        )}
      </p>
      <ScrollBox>
        <table className="w-full whitespace-nowrap">
          <caption className="sr-only">How long each replica computes and waits in a traced step</caption>
          <thead>
            <tr className="border-line border-b text-left text-muted text-xs">
              {HEADS.map((head) => (
                <th className="h-7 pr-6 font-normal last:pr-0" key={head} scope="col">
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {devices.map((one) => (
              <Row isSlow={one.device === slowest?.device} key={one.device} one={one} steps={steps.length} />
            ))}
          </tbody>
        </table>
      </ScrollBox>
      {found.next && (
        <p className="mt-3 text-muted text-xs">
          The {formatInteger(devices.length)} that wait least; all by{" "}
          <code>drumline replicas {found.run}</code>.
        </p>
      )}
    </div>
  );
}

function Row({ one, steps, isSlow }: { one: ReplicaTime; steps: number; isSlow: boolean }) {
  const name = one.logical ? `${one.replica}.${one.logical}` : `${one.replica}`;
  return (
    <tr className="h-8 border-line border-b last:border-b-0" data-slow={isSlow || undefined}>
      <th className="pr-6 text-left font-medium tabular-nums" scope="row">
        {name}
        {isSlow && <span className="ml-2 font-normal text-warn text-xs">the others wait for it</span>}
      </th>
      <td className="pr-6">{one.host_name}</td>
      <td className="pr-6">
        <Bar one={one} />
      </td>
      <td className="pr-6 tabular-nums">{formatMs(one.computing_ms)}</td>
      <td className="pr-6 tabular-nums">{formatMs(one.collective_ms)}</td>
      <td className="pr-6 tabular-nums">{formatMs(one.idle_ms)}</td>
      <td className="tabular-nums">
        {formatInteger(one.waited_least)} of {formatInteger(steps)}
      </td>
    </tr>
  );
}

function Bar({ one }: { one: ReplicaTime }) {
  const parts = [
    ["computes", one.computing_ms],
    ["collectives", one.collective_ms],
    ["idle", one.idle_ms],
  ] as const;
  const whole = parts.reduce((sum, [, ms]) => sum + ms, 0);
  if (whole === 0) return null;
  return (
    <span aria-hidden className="flex h-3 w-40 overflow-hidden rounded-control border border-line">
      {parts.map(([name, ms]) => (
        <span
          className="h-full"
          key={name}
          style={{ width: `${(100 * ms) / whole}%`, background: COLORS[name] }}
          title={`${name}: ${formatMs(ms)}`}
        />
      ))}
    </span>
  );
}
