import type { Probe } from "@/api/schema";
import { Skeleton } from "@/components/ui/view-states";

/** How far the look at the program is, or why it found nothing. */
export function ProbeNote({ probe, pending, on }: { probe: Probe; pending: boolean; on: string | null }) {
  if (pending) {
    return (
      <div aria-busy="true" className="space-y-2 pt-5" role="status">
        <p className="text-muted">
          {on === null
            ? `${probe.host_name} runs the program’s first steps on simulated devices: batches, variables, exchanges and memory follow.`
            : probe.message || `${probe.host_name} compiles the program for ${on}.`}
        </p>
        <Skeleton className="w-96 max-w-full" />
        <Skeleton className="w-80 max-w-full" />
      </div>
    );
  }
  if (!probe.message) return null;
  const failed = probe.state === "failed" && probe.fault !== "cancelled";
  return (
    <div
      className={failed ? "mt-5 border-bad border-l-2 py-1 pl-4" : "pt-5"}
      role={failed ? "alert" : "status"}
    >
      {failed && <p className="font-strong">The program could not be looked at</p>}
      <p className="break-words">{probe.message}</p>
      {probe.output && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
        <pre className="mt-2 max-h-56 overflow-auto text-muted text-xs leading-5" tabIndex={0}>
          {probe.output}
        </pre>
      )}
    </div>
  );
}
