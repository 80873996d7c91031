import type { ArraySummary } from "@/api/schema";
import { HeatLegend, HeatStrip } from "@/components/charts/heat-strip";
import { ReplicaChip } from "@/components/ui/replica-chip";
import { classNames } from "@/lib/class-names";
import { formatInteger, formatNumber } from "@/lib/format";
import { fromWire } from "@/lib/wire-numbers";
import { shapeText } from "./arithmetic";
import { Cosine, Norm } from "./outliers";
import { Dot, ScaleAxis, ScaleLegend, ScaleMarks } from "./scale-marks";
import type { ReductionView, ReplicaInput } from "./view-model";

const GRID_OF_ARRAYS =
  "grid-cols-[36px_minmax(48px,1fr)_64px_56px] gap-x-3 sm:grid-cols-[44px_minmax(96px,1fr)_56px_72px_64px] wide:grid-cols-[44px_minmax(96px,1fr)_56px_72px_64px_32px]";

/** A row per replica: its values, how many they are, and where its own number stands among the others. */
export function ReplicaRows({ view }: { view: ReductionView }) {
  const onScale = view.scale !== null;
  const grid = view.isArray
    ? GRID_OF_ARRAYS
    : onScale
      ? "grid-cols-[36px_minmax(48px,2fr)_40px_minmax(104px,3fr)] gap-x-2 sm:grid-cols-[44px_minmax(96px,3fr)_56px_minmax(140px,5fr)] sm:gap-x-3 wide:grid-cols-[44px_minmax(96px,3fr)_56px_minmax(140px,5fr)_32px]"
      : "grid-cols-[36px_minmax(48px,1fr)_48px] gap-x-3 sm:grid-cols-[44px_minmax(96px,1fr)_56px] wide:grid-cols-[44px_minmax(96px,1fr)_56px_32px]";
  return (
    <div className="min-w-0 overflow-x-auto max-wide:pr-3">
      <div className={classNames("mb-2 text-muted text-xs", view.isArray && `grid ${grid}`)}>
        <h3 className={view.isArray ? "col-span-2 sm:col-span-3" : ""}>Per replica</h3>
        {view.isArray && <span className="text-right">norm</span>}
        {view.isArray && (
          <span className="text-right" title="Of each replica's array to the result">
            cosine
          </span>
        )}
      </div>
      <div className="relative">
        <ul>
          {view.inputs.map((input, at) => (
            <li
              className={classNames("grid h-8 items-center border-line border-b", grid)}
              data-count={input.count}
              data-replica={input.replica}
              data-shape={input.summary.shape.join(",")}
              data-testid="replica-input"
              data-values={input.tensor?.values.join(",")}
              key={input.replica}
            >
              <ReplicaChip replica={input.replica} />
              <Values input={input} view={view} />
              <span className={classNames("text-right text-xs", view.isArray && "max-sm:hidden")}>
                <span className="text-muted">n=</span>
                {input.count}
              </span>
              {view.scale && (
                <div className="relative h-full">
                  <ScaleMarks view={view} />
                  <Dot input={input} scale={view.scale} view={view} />
                </div>
              )}
              {view.isArray && <Norm input={input} view={view} />}
              {view.isArray && <Cosine input={input} view={view} />}
              <Bracket first={at === 0} last={at === view.inputs.length - 1} />
            </li>
          ))}
        </ul>
        <Arrow />
      </div>
      {view.scale === null && view.heat && drawsStrips(view) && <HeatLegend scale={view.heat} />}
      {view.scale && (
        <div className={classNames("grid", grid)}>
          <div className="col-span-3 -mb-4 pr-2 max-sm:mb-0">
            {view.heat && drawsStrips(view) && <HeatLegend scale={view.heat} />}
          </div>
          <ScaleAxis scale={view.scale} />
          <ScaleLegend
            className="col-span-full max-sm:mt-2 max-sm:justify-start sm:col-start-2 sm:col-end-5"
            view={view}
          />
        </div>
      )}
    </div>
  );
}

function drawsStrips(view: ReductionView): boolean {
  return view.inputs.some(({ strip }) => strip !== null);
}

/** The values as text, as a strip on the shared scale, or as statistics where they were not kept. */
function Values({ input, view }: { input: ReplicaInput; view: ReductionView }) {
  const { tensor, summary, strip } = input;
  if ((strip || !tensor) && isNoneFinite(summary)) return <NoneFinite summary={summary} />;
  if (strip && view.heat) {
    return (
      <div className="min-w-0" title={`shape ${shapeText(summary.shape)}, ${summary.dtype}`}>
        <HeatStrip
          buckets={strip}
          label={`Values of replica ${input.replica}: ${formatNumber(fromWire(summary.min))} to ${formatNumber(fromWire(summary.max))}`}
          scale={view.heat}
        />
      </div>
    );
  }
  if (strip) return <NoneFinite summary={summary} />;
  if (!tensor) {
    return (
      <span className="truncate text-muted text-xs">
        {shapeText(summary.shape)} {summary.dtype}, mean {formatNumber(fromWire(summary.mean))}
      </span>
    );
  }
  if (tensor.values.length === 0) return <span className="text-muted text-xs">no elements</span>;
  const text = tensor.values.map((value) => formatNumber(value)).join("  ");
  return (
    <code className="truncate text-xs" title={tensor.values.join(", ")}>
      {tensor.shape.length === 0 ? text : `[${text}]`}
    </code>
  );
}

function isNoneFinite({ shape, nan_count: nan, inf_count: inf }: ArraySummary): boolean {
  const size = shape.reduce((product, n) => product * n, 1);
  return size > 0 && nan + inf >= size;
}

/** `no finite value: 12 NaN, 4 Inf`. */
function NoneFinite({ summary: { nan_count: nan, inf_count: inf } }: { summary: ArraySummary }) {
  const counts = [nan > 0 && `${formatInteger(nan)} NaN`, inf > 0 && `${formatInteger(inf)} Inf`];
  const said = ["no finite value", counts.filter(Boolean).join(", ")].filter(Boolean).join(": ");
  return (
    <span className="truncate text-bad text-xs" title={said}>
      {said}
    </span>
  );
}

/** From the middle of the gathered rows on to the reduction. */
function Arrow() {
  return (
    <span
      aria-hidden="true"
      className="absolute top-1/2 right-0 w-4 border-line-strong border-t max-wide:hidden"
    >
      <span className="absolute -top-1 right-0 size-[7px] rotate-45 border-line-strong border-t border-r" />
    </span>
  );
}

/** The line that gathers all rows and leads on to the reduction. */
function Bracket({ first, last }: { first: boolean; last: boolean }) {
  return (
    <span aria-hidden="true" className="relative h-full max-wide:hidden">
      <span className="absolute top-1/2 right-4 left-0 border-line-strong border-t" />
      <span
        className={classNames(
          "absolute right-4 border-line-strong border-r",
          first ? "top-1/2" : "top-0",
          last ? "bottom-1/2" : "-bottom-px",
        )}
      />
    </span>
  );
}
