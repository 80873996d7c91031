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

/** What came out, whether it follows from what is shown, and who stands apart. */
export function ResultColumn({ view }: { view: ReductionView }) {
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
      <ReplayLine replay={view.replay} />
      <div className="mt-4 text-xs">
        <Facts facts={factsOf(view)} />
      </div>
      <Outliers reduction={reduction} />
      <SamplingLine sampling={reduction.sampling} />
    </div>
  );
}

/** Whether adding the shown values again, in their type, gives the result bit for bit. */
function ReplayLine({ replay }: { replay: Replay | null }) {
  if (!replay || replay.outcome === "differs") return null;
  const { outcome, ulps, bound } = replay;
  return (
    <p className="mt-1 text-2xs text-muted" data-testid="replay">
      {outcome === "bit for bit"
        ? "replayed: bit for bit, added in the order of the replicas"
        : `replayed: within ${formatNumber(ulps, 3)} ulp (bound ${formatNumber(bound, 3)}), because XLA chooses the order of the sum`}
    </p>
  );
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

function factsOf({ reduction, spread, scalar, notFinite }: ReductionView): Fact[] {
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
  if (notFinite > 0)
    facts.push([
      "Not finite",
      <span className="text-bad" key="not-finite">
        {formatInteger(notFinite)} in
      </span>,
    ]);
  return facts;
}
