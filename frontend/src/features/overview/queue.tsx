import { Link } from "@tanstack/react-router";
import type { Overview, QueuedRun } from "@/api/schema";
import { Age, RunLink } from "@/components/runs/run-columns";
import { StrategyMark } from "@/components/ui/glyphs";
import { Section } from "@/components/ui/section";
import { count } from "@/lib/format";

/** What waits, and the rule that it waits for. */
export function Queue({ overview }: { overview: Overview }) {
  const { queued, queued_total: total } = overview;
  return (
    <Section
      aside={
        total > queued.length && (
          <Link className="link" search={{ q: "state:queued" }} to="/runs">
            All {total}
          </Link>
        )
      }
      note={total > 0 && `${count(total, "run")} waiting`}
      title="Queue"
    >
      {queued.length === 0 ? (
        <p className="py-3 text-muted">Nothing waits.</p>
      ) : (
        <ol>
          {queued.map((entry) => (
            <QueuedLine entry={entry} key={entry.run.id} />
          ))}
        </ol>
      )}
    </Section>
  );
}

function QueuedLine({ entry: { run, why } }: { entry: QueuedRun }) {
  return (
    <li className="grid grid-cols-[24px_1fr_auto] gap-x-3 border-line border-b py-2">
      <span className="text-muted">{why.position ?? "–"}</span>
      <span className="flex h-5 min-w-0 items-center gap-3">
        <RunLink run={run} />
        <span className="inline-flex shrink-0 items-center gap-1.5 text-muted">
          <StrategyMark bare kind={run.strategy} />
          {count(run.replicas, "replica")}
        </span>
      </span>
      <span className="text-muted">
        <Age moment={run.created_at} />
      </span>
      <span className="col-span-2 col-start-2 text-pretty">{why.sentence}</span>
      {why.remedy && <span className="col-span-2 col-start-2 text-pretty text-muted">{why.remedy}</span>}
    </li>
  );
}
