import { Link } from "@tanstack/react-router";
import { LineMark } from "@/components/charts/line-mark";
import { flawOf } from "@/components/runs/run-facts";
import { Button } from "@/components/ui/button";
import { StateIcon } from "@/components/ui/state-badge";
import { MOST_LINES } from "./drawn";
import type { Compared } from "./model";
import { type CompareSearch, parseRuns } from "./search";

interface LegendProps {
  compared: readonly Compared[];
  search: CompareSearch;
  change: (next: Partial<CompareSearch>) => void;
}

/** Which line is which run; a box hides or shows it, and one is the base of the others. */
export function Legend({ compared, search, change }: LegendProps) {
  const many = compared.length > MOST_LINES;
  const toggle = ({ id, drawn }: Compared) => {
    const key = many ? "draw" : "hide";
    const listed = parseRuns(search[key]);
    const add = many ? !drawn : drawn;
    change({ [key]: (add ? [...listed, id] : listed.filter((one) => one !== id)).join(",") || undefined });
  };
  return (
    <section aria-label="Runs that are compared">
      <ul
        className="grid max-h-44 gap-x-6 overflow-y-auto sm:grid-cols-2 xl:grid-cols-3"
        data-testid="legend"
      >
        {compared.map((one) => (
          <li className="flex h-7 min-w-0 items-center gap-2" data-run={one.id} key={one.id}>
            <input
              aria-label={`Draw ${one.label}`}
              checked={one.drawn}
              disabled={many && one.base}
              onChange={() => toggle(one)}
              type="checkbox"
            />
            <LineMark style={one.style} />
            {one.run && <StateIcon flaw={flawOf(one.run)} state={one.run.state} />}
            <Link
              className="min-w-0 truncate hover:underline"
              params={{ runId: one.id }}
              title={one.id}
              to="/runs/$runId/metrics"
            >
              {one.label}
            </Link>
            {one.base ? (
              <span className="ml-auto shrink-0 px-2 text-accent text-xs">base</span>
            ) : (
              <Button
                aria-label={`Make ${one.label} the base`}
                className="ml-auto h-6!"
                compact
                look="quiet"
                onClick={() => change({ base: one.id })}
              >
                base
              </Button>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
