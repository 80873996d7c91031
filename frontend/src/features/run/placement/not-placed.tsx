import { useMemo, useRef } from "react";
import type { PlacedDevice, Placement } from "@/api/schema";
import { isTerminal } from "@/api/states";
import { useSize } from "@/components/charts/use-size";
import { strategyName } from "@/components/ui/glyphs";
import { count } from "@/lib/format";
import { oneOf } from "@/lib/search-params";
import type { SteadyRun } from "../queries";
import { DeviceMap } from "./device-map";
import { layOut } from "./layout";
import { paintsFor } from "./paint";

/** A plan in the place of a map: as many hatched devices as the run asks for, and why they are not there yet. */
export function NotPlaced({ run }: { run: SteadyRun }) {
  const box = useRef<HTMLDivElement>(null);
  const { width } = useSize(box);
  const placement = useMemo(() => planOf(run), [run]);
  const layout = useMemo(
    () => layOut(placement.devices, "replica", Math.max(320, width - 16)),
    [placement, width],
  );
  const paints = useMemo(
    () => paintsFor({ placement, attempt: undefined, hosts: [], ended: false }, "replica"),
    [placement],
  );
  const over = isTerminal(run.state);
  return (
    <div data-testid="not-placed">
      <p className="mb-1">{over ? "This run ended before it had devices." : "Not placed yet."}</p>
      <p className="mb-5 max-w-2xl text-muted">
        {over ? "It asked" : "It asks"} for {count(run.replicas, "replica")} with {strategyName(run.strategy)}
        {run.platform === "any" ? "" : ` on ${run.platform.toUpperCase()} devices`}.
      </p>
      <div ref={box}>
        {width > 0 && (
          <DeviceMap
            layout={layout}
            onSelect={() => undefined}
            paints={paints}
            placement={placement}
            planned
            selected={undefined}
            storage={null}
          />
        )}
      </div>
    </div>
  );
}

function planOf(run: SteadyRun): Placement {
  const devices = Array.from({ length: run.replicas }, (_, replica): PlacedDevice => {
    const platform = oneOf(run.platform, ["cpu", "gpu", "tpu"]) ?? "cpu";
    return {
      device: `planned-${replica}`,
      host: "planned",
      host_name: "",
      platform,
      index: replica,
      kind: "",
      memory_bytes: null,
      coords: null,
      core_on_chip: null,
      simulated: false,
      replica,
      logical: 0,
    };
  });
  return {
    run: run.id,
    attempt: null,
    strategy: run.strategy,
    executor: null,
    confirmed: false,
    devices,
    replicas: [],
    variables: [],
    exchanges: { programs: [], more_programs: 0, not_recorded: "no_step" },
  };
}
