import type { ReactNode } from "react";
import type { Reduction } from "@/api/schema";
import { HeatStrip } from "@/components/charts/heat-strip";
import { type Fact, Facts } from "@/components/ui/facts";
import { classNames } from "@/lib/class-names";
import { formatInteger, formatNumber } from "@/lib/format";
import { fromWire } from "@/lib/wire-numbers";
import { shapeText } from "./arithmetic";
import { Outliers, SamplingLine } from "./outliers";
import type { Replay } from "./replay";
import { type ReductionView, stripOfArray } from "./view-model";

const MOST_LISTED = 64;

interface ResultColumnProps {
  view: ReductionView;
  /** How the result is replayed where its inputs' elements are not on the page. */
  children?: ReactNode;
}

/** What came out, whether it follows from what is shown, and who stands apart. */
export function ResultColumn({ view, children }: ResultColumnProps) {
  const { reduction, result, scalar, heat } = view;
  const strip = scalar === null ? stripOfArray(reduction.output) : null;
  return (
    <div
      className="min-w-0 wide:border-line wide:border-l wide:pl-5"
      data-testid="reduction-result"
      data-values={result?.values.join(",")}
    >
      <h3 className="mb-2 text-muted text-xs">Result</h3>
      {scalar !== null ? (
        <p
          className={classNames("break-all font-mono text-lg", !Number.isFinite(scalar) && "text-warn")}
          title={String(scalar)}
        >
          {formatNumber(scalar, 6)}
        </p>
      ) : (
        <>
          <p className="font-mono text-xs">
            {shapeText(reduction.output.shape)} {reduction.output.dtype}
          </p>
          {strip && heat && (
            <div className="mt-2">
              <HeatStrip buckets={strip} height={24} label="The result" scale={heat} />
            </div>
          )}
          {result && result.values.length <= MOST_LISTED && (
            <p className="mt-2 break-words font-mono text-xs">
              [{result.values.map((value) => formatNumber(value)).join("  ")}]
            </p>
          )}
        </>
      )}
      <Verdict view={view} />
      {view.replay && <ReplayLine replay={view.replay} />}
      {children}
      <div className="mt-4 text-xs">
        <Facts facts={factsOf(view)} />
      </div>
      <NotFinite reduction={reduction} />
      <Outliers reduction={reduction} />
      <SamplingLine sampling={reduction.sampling} />
    </div>
  );
}

/** Whether adding the values again, in their type, gives the result bit for bit; a verdict may say the difference. */
export function ReplayLine({ replay, saysDifference }: { replay: Replay; saysDifference?: boolean }) {
  if (replay.outcome === "differs" && !saysDifference) return null;
  return (
    <p
      className={classNames("mt-1 text-2xs", replay.outcome === "differs" ? "text-bad" : "text-muted")}
      data-testid="replay"
    >
      {replayText(replay)}
    </p>
  );
}

function replayText({ outcome, ulps, bound }: Replay): string {
  if (outcome === "bit for bit") return "replayed: bit for bit, added in the order of the replicas";
  const within = `${formatNumber(ulps, 3)} ulp (bound ${formatNumber(bound, 3)})`;
  return outcome === "differs"
    ? `replayed: differs by ${within}: it does not follow from the inputs`
    : `replayed: within ${within}, because XLA chooses the order of the sum`;
}

/** The shown values, worked out again, against the recorded result. */
function Verdict({ view }: { view: ReductionView }) {
  const { recomputed } = view;
  if (recomputed.kind === "shapes_differ") return null;
  if (recomputed.kind === "not_kept") return <p className="mt-1 text-muted text-xs">{recomputed.sentence}</p>;
  if (recomputed.reproduces && view.notFinite > 0) {
    return (
      <p className="mt-1 text-warn text-xs" data-reproduces="true" data-testid="verdict">
        ⚠ follows from the values shown, of which {formatInteger(view.notFinite)}{" "}
        {view.notFinite === 1 ? "is" : "are"} not finite
      </p>
    );
  }
  if (recomputed.reproduces) {
    return (
      <p className="mt-1 text-ok text-xs" data-reproduces="true" data-testid="verdict">
        ✓ follows from the values shown
      </p>
    );
  }
  return (
    <p className="mt-1 text-bad text-xs" data-reproduces="false" data-testid="verdict">
      ✕ does not follow from the values shown: differs by {formatNumber(recomputed.largestDifference)}
    </p>
  );
}

/** How many elements are NaN or infinite, of what went in and of what came out. */
function NotFinite({ reduction: { inputs, output } }: { reduction: Reduction }) {
  const [put, came] = [inputs, [output]].map((arrays) =>
    arrays.reduce((sum, { nan_count, inf_count }) => sum + (nan_count ?? 0) + (inf_count ?? 0), 0),
  );
  if (!put && !came) return null;
  return (
    <p className="mt-3 text-bad text-xs" data-testid="not-finite">
      {formatInteger(put)} of the elements put in and {formatInteger(came)} of the result{" "}
      {(put ?? 0) + (came ?? 0) === 1 ? "is" : "are"} NaN or infinite.
    </p>
  );
}

function factsOf({ reduction, spread, scalar }: ReductionView): Fact[] {
  const { output } = reduction;
  const facts: Fact[] = [["Type", <code key="type">{output.dtype}</code>]];
  if (scalar !== null && spread) {
    facts.push(["Median", formatNumber(spread.median)], ["MAD", formatNumber(spread.mad)]);
  }
  if (scalar === null) {
    facts.push(
      ["Min", formatNumber(fromWire(output.min))],
      ["Mean", formatNumber(fromWire(output.mean))],
      ["Max", formatNumber(fromWire(output.max))],
      ["Norm", formatNumber(fromWire(output.norm))],
    );
  }
  return facts;
}
