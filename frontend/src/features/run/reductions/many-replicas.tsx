import { useState } from "react";
import { Button } from "@/components/ui/button";
import { ReplicaChip } from "@/components/ui/replica-chip";
import { formatInteger, formatNumber } from "@/lib/format";
import { fromWire } from "@/lib/wire-numbers";
import { Histogram } from "./histogram";
import { Cosine, Norm } from "./outliers";
import { lanesOf, mostExtreme, spreadOf } from "./statistics";
import type { ReductionView, ReplicaInput } from "./view-model";

const EXTREMES = 8;
const PAGE = 100;

/** Above 32 replicas: their distribution, the most extreme ones by name, and all of them on demand. */
export function ManyReplicas({ view }: { view: ReductionView }) {
  const [shown, setShown] = useState(0);
  const own = view.inputs.map((input) => input.own ?? Number.NaN);
  const lanes = lanesOf(own);
  const notFinite = lanes.nan.length + lanes.positive.length + lanes.negative.length;
  const figures = view.isArray ? view.inputs.map((input) => fromWire(input.summary.norm) ?? Number.NaN) : own;
  const odd = [...new Set(view.reduction.outliers.map(({ replica }) => replica))];
  const extremes = [...new Set([...odd, ...mostExtreme(figures, EXTREMES)])].slice(0, EXTREMES);
  const median = spreadOf(own)?.median ?? null;
  const rows = shown === 0 ? extremes : view.inputs.slice(0, shown).map((input) => input.replica);
  return (
    <div className="min-w-0 wide:pr-5">
      <h3 className="mb-2 text-muted text-xs">Per replica</h3>
      {view.scale && (
        <Histogram
          result={view.reduction.op === "mean" ? view.scalar : null}
          scale={view.scale}
          values={own}
        />
      )}
      {view.scale && notFinite > 0 && (
        <p className="mt-1 text-bad text-xs">
          {formatInteger(lanes.nan.length)} NaN, {formatInteger(lanes.positive.length)} +inf,{" "}
          {formatInteger(lanes.negative.length)} −inf
        </p>
      )}
      <table className="mt-4 w-full">
        <caption className="pb-1 text-left text-muted text-xs">
          {shown === 0
            ? `The ${extremes.length} farthest from the median${view.isArray ? " norm" : ""}`
            : "All replicas"}
        </caption>
        {view.isArray && (
          <thead>
            <tr className="text-muted text-xs">
              <th className="font-normal" scope="col">
                <span className="sr-only">Replica</span>
              </th>
              {["norm", "cosine", ""].map((head) => (
                <th className="text-right font-normal" key={head} scope="col">
                  {head}
                </th>
              ))}
            </tr>
          </thead>
        )}
        <tbody>
          {rows.map((replica) => (
            <Row input={view.inputs[replica]} key={replica} median={median} view={view} />
          ))}
        </tbody>
      </table>
      {shown < view.inputs.length && (
        <Button className="mt-3" compact onClick={() => setShown(shown + PAGE)}>
          {shown === 0 ? `Show all ${formatInteger(view.inputs.length)} replicas` : "Show more"}
        </Button>
      )}
    </div>
  );
}

interface RowProps {
  input: ReplicaInput | undefined;
  median: number | null;
  view: ReductionView;
}

function Row({ input, median, view }: RowProps) {
  if (!input) return null;
  const { own, replica, count, tensor } = input;
  return (
    <tr
      className="h-7 border-line border-b"
      data-count={count}
      data-replica={replica}
      data-testid="replica-input"
      data-values={tensor?.values.join(",")}
    >
      <td className="w-14">
        <ReplicaChip replica={replica} />
      </td>
      <td className={view.isArray ? "text-right" : "font-mono text-xs"}>
        {view.isArray ? <Norm input={input} view={view} /> : own === null ? "array" : formatNumber(own, 6)}
      </td>
      <td className="text-right text-muted text-xs">
        {view.isArray && <Cosine input={input} view={view} />}
        {own !== null && median !== null && Number.isFinite(own)
          ? `${own >= median ? "+" : "−"}${formatNumber(Math.abs(own - median))}`
          : ""}
      </td>
      <td className="w-16 text-right text-xs">
        <span className="text-muted">n=</span>
        {count}
      </td>
    </tr>
  );
}
