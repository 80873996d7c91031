import { getRouteApi } from "@tanstack/react-router";
import { useMemo, useRef, useState } from "react";
import { SingleValue } from "@/components/charts/single-value";
import { TimeChart } from "@/components/charts/time-chart";
import { useNearViewport } from "@/components/charts/use-near-viewport";
import { Button } from "@/components/ui/button";
import { Section } from "@/components/ui/section";
import { classNames } from "@/lib/class-names";
import { count, formatDuration, formatInteger, formatNumber } from "@/lib/format";
import { bucketCaption, type Curve, domainOf, type XAxis } from "./series";

const route = getRouteApi("/runs/$runId/throughput");
/** More charts than these wait for a press: each costs a canvas. */
const PAGE = 12;

/** Speed first, then what the program logs. */
export function Charts({ curves, axis }: { curves: readonly Curve[]; axis: XAxis }) {
  const [shown, setShown] = useState(PAGE);
  const { from, to } = route.useSearch();
  // Also of curves that are not shown yet: more of them must not move those that are.
  const [first, last] = domainOf(curves, from, to);
  const domain = useMemo((): [number, number] => [first, last], [first, last]);
  const own = curves.filter(({ name }) => !name.startsWith("sys/"));
  const speed = curves.filter(({ name }) => name.startsWith("sys/"));
  return (
    <div className="flex flex-col gap-8">
      {speed.length > 0 && (
        <Section title="Speed">
          <Grid axis={axis} curves={speed} domain={domain} />
        </Section>
      )}
      {own.length > 0 && (
        <Section note={`${formatInteger(own.length)} logged by the program`} title="Metrics">
          <Grid axis={axis} curves={own.slice(0, shown)} domain={domain} />
          {shown < own.length && (
            <Button className="mt-4" compact onClick={() => setShown(shown + PAGE)}>
              Show more of {formatInteger(own.length)} metrics
            </Button>
          )}
        </Section>
      )}
    </div>
  );
}

interface GridProps {
  curves: readonly Curve[];
  axis: XAxis;
  domain: readonly [number, number];
}

function Grid({ curves, axis, domain }: GridProps) {
  return (
    <div className="grid gap-x-8 gap-y-6 pt-3 md:grid-cols-2 xl:grid-cols-3">
      {curves.map((curve) => (
        <LazyChart axis={axis} curve={curve} domain={domain} key={curve.name} />
      ))}
    </div>
  );
}

/** A chart that is built when it comes near the screen. */
function LazyChart({ curve, axis, domain }: Omit<GridProps, "curves"> & { curve: Curve }) {
  const box = useRef<HTMLDivElement>(null);
  const near = useNearViewport(box);
  const { log = false } = route.useSearch();
  const navigate = route.useNavigate();
  const zoom = (range: { from: number | undefined; to: number | undefined }) =>
    void navigate({ search: (old) => ({ ...old, ...range }), replace: true, resetScroll: false });
  // Zoomed in, a curve of many values may have one or none to show.
  const single = curve.n === 1 && curve.x.length === 1;
  return (
    <div className={classNames("min-w-0", !single && "min-h-[236px]")} data-metric={curve.name} ref={box}>
      {near && single && (
        <SingleValue
          formatX={axis === "step" ? formatStep : formatSeconds}
          formatY={(value) => formatNumber(value)}
          title={curve.title}
          unit={curve.unit}
          odd={curve.odd[0] ?? null}
          value={curve.last[0] ?? null}
          x={curve.x[0] ?? 0}
          xName={axis === "step" ? "step" : "at"}
        />
      )}
      {near && !single && (
        <TimeChart
          caption={caption(curve, axis)}
          columns={curve}
          domain={domain}
          formatX={axis === "step" ? formatStep : formatSeconds}
          formatY={(value) => formatNumber(value)}
          group="run"
          log={log}
          since={curve.name.startsWith("sys/")}
          onRange={(from, to) => zoom(roundRange(axis, from, to))}
          onReset={() => zoom({ from: undefined, to: undefined })}
          title={curve.title}
          unit={curve.unit}
          xName={axis === "step" ? "step" : "at"}
        />
      )}
    </div>
  );
}

function caption(curve: Curve, axis: XAxis): string {
  const holes = curve.notFinite.length;
  const told = [
    curve.x.length === 0 ? "no value in this range" : bucketCaption(curve, axis),
    holes > 0 && `${formatInteger(holes)} gaps where every value is NaN or infinite`,
    curve.lost > 0 && `values lost at ${count(curve.lost, "place")}`,
  ];
  return told.filter(Boolean).join(" · ");
}

const formatStep = (value: number) => formatNumber(value, 6);
const formatSeconds = (value: number) => formatDuration(value);

/** Whole steps, or milliseconds, so that the address stays readable. */
function roundRange(axis: XAxis, from: number, to: number): { from: number; to: number } {
  if (axis === "step") return { from: Math.floor(from), to: Math.max(Math.ceil(to), Math.floor(from) + 1) };
  return { from: Number(from.toFixed(3)), to: Number(to.toFixed(3)) };
}
