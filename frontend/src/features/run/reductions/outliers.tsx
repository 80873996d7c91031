import type { Reduction } from "@/api/schema";
import { classNames } from "@/lib/class-names";
import { formatInteger, formatNumber } from "@/lib/format";
import { fromWire } from "@/lib/wire-numbers";
import type { ReductionView, ReplicaInput } from "./view-model";

type Outlier = Reduction["outliers"][number];

/** The replica as an outlier by that figure, as the server found it. */
export function outlierBy(view: ReductionView, replica: number, by: Outlier["by"]): Outlier | undefined {
  return view.reduction.outliers.find((each) => each.replica === replica && each.by === by);
}

/** `5.2 deviations high`; where most agree there is no deviation to measure with. */
export function awayText({ deviations, value, median }: Outlier): string {
  const direction = value > median ? "high" : "low";
  return deviations === null
    ? `${direction}, most others agree`
    : `${formatNumber(deviations, 2)} deviations ${direction}`;
}

function outlierText(outlier: Outlier): string {
  if (outlier.by === "not_finite")
    return `${formatInteger(outlier.value)} not finite, most replicas have none`;
  const what = outlier.by === "value" ? "" : `${outlier.by} ${formatNumber(outlier.value)}: `;
  return `${what}${awayText(outlier)}`;
}

interface FigureProps {
  input: ReplicaInput;
  view: ReductionView;
}

/** Of a replica's array: finite elements, with a mark where others are among them. */
export function Norm({ input, view }: FigureProps) {
  const { summary, replica } = input;
  const notFinite = (summary.nan_count ?? 0) + (summary.inf_count ?? 0);
  const outlier = outlierBy(view, replica, "not_finite") ?? outlierBy(view, replica, "norm");
  const norm = fromWire(summary.norm);
  return (
    <span
      className={classNames("truncate text-right text-xs", outlier && "text-warn")}
      title={notFinite > 0 ? `${formatInteger(notFinite)} not finite` : outlier && outlierText(outlier)}
    >
      {notFinite > 0 && <span className="text-bad">⚠ </span>}
      {norm === null ? "–" : formatNumber(norm, 3)}
    </span>
  );
}

/** Between a replica's array and the result: 1 where it points the same way. */
export function Cosine({ input, view }: FigureProps) {
  const outlier = outlierBy(view, input.replica, "cosine");
  const { cosine } = input.summary;
  return (
    <span
      className={classNames("text-right text-xs", outlier && "text-warn")}
      data-cosine={cosine ?? undefined}
      title={outlier && outlierText(outlier)}
    >
      {typeof cosine === "number" ? formatNumber(cosine, 3) : "–"}
    </span>
  );
}

const MOST_LISTED = 4;

/** Who stands apart, and by what. */
export function Outliers({ reduction }: { reduction: Reduction }) {
  const { outliers, outlier_count: count } = reduction;
  if (count === 0) return null;
  return (
    <ul className="mt-3 text-warn text-xs" data-testid="outliers">
      {outliers.slice(0, MOST_LISTED).map((outlier) => (
        <li
          key={`${outlier.replica} ${outlier.by}`}
          title={`${outlier.by} ${outlier.value}, median ${outlier.median}`}
        >
          r{outlier.replica} {outlierText(outlier)}
        </li>
      ))}
      {count > MOST_LISTED && (
        <li className="text-muted">and {formatInteger(count - MOST_LISTED)} more outliers</li>
      )}
    </ul>
  );
}

/** Every how many calls a large array is recorded, and what that costs. */
export function SamplingLine({ sampling }: { sampling: Reduction["sampling"] }) {
  if (!sampling) return null;
  const { every, is_chosen, extra_s, plain_s } = sampling;
  const measured = typeof extra_s === "number" && typeof plain_s === "number";
  const share = measured ? extra_s / (every * plain_s) : null;
  return (
    <p
      className="mt-3 text-2xs text-muted"
      data-testid="sampling"
      title={measured ? `${extra_s} s more than a call of ${plain_s} s` : undefined}
    >
      Recorded every {formatInteger(every)} calls
      {share !== null && `, ${formatNumber(share * 100, 2)} % of the time`}
      {is_chosen && share === null && " until its cost is measured"}
      {!is_chosen && ", as record.large_reductions_every says"}.
    </p>
  );
}
