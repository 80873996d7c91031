import { getRouteApi } from "@tanstack/react-router";
import { useMemo, useRef } from "react";
import { useSize } from "@/components/charts/use-size";
import { Segmented } from "@/components/ui/segmented";
import { formatInteger } from "@/lib/format";
import { useShortcut } from "@/lib/shortcuts";
import { ArrivalTiles } from "./arrival-tiles";
import { DeviceMap } from "./device-map";
import { DeviceTable } from "./device-table";
import { crossesHosts, crossingText } from "./exchanges";
import { ExchangesSection } from "./exchanges-section";
import { hasCoordinates } from "./groups";
import { type Layout, layOut } from "./layout";
import { paintsFor, railsOf, type Scene } from "./paint";
import { ReplicaTimes } from "./replica-times";
import { storageOf } from "./storage";
import { Summary } from "./summary";
import { Usage } from "./usage";
import { Variables } from "./variables";

const route = getRouteApi("/runs/$runId/placement");

/** What stands under the map is not rendered again for its colours. */
export function PlacementView({ scene }: { scene: Scene }) {
  const { placement, ended } = scene;
  return (
    <div className="flex flex-col gap-8">
      <Devices scene={scene} />
      <ExchangesSection placement={placement} />
      <ArrivalTiles ended={ended} runId={placement.run} />
      <ReplicaTimes ended={ended} runId={placement.run} />
      <Usage ended={ended} runId={placement.run} />
      <Variables placement={placement} />
    </div>
  );
}

/** The devices as a map or a table, and what is chosen of them. */
function Devices({ scene }: { scene: Scene }) {
  const { placement } = scene;
  const { color = "replica", layout: chosen, view = "map", sel } = route.useSearch();
  const navigate = route.useNavigate();
  const coordinates = hasCoordinates(placement.devices);
  const kind = chosen ?? (coordinates ? "torus" : "host");
  const box = useRef<HTMLDivElement>(null);
  const { width } = useSize(box);
  const paints = useMemo(() => paintsFor(scene, color), [scene, color]);
  const layout = useMemo(
    () => layOut(placement.devices, kind, Math.max(320, width - 8), railsOf(placement)),
    [placement, kind, width],
  );
  const storage = useMemo(() => storageOf(placement), [placement]);
  const change = (search: Partial<ReturnType<typeof route.useSearch>>) =>
    void navigate({ search: (old) => ({ ...old, ...search }), replace: true, resetScroll: false });
  const select = (device: string | undefined) => change({ sel: device });
  useShortcut({ keys: "T", meaning: "Map or table", group: "Run" }, () =>
    change({ view: view === "map" ? "table" : undefined }),
  );
  return (
    <div>
      <div className="mb-5 flex flex-wrap items-center gap-x-6 gap-y-2">
        <Segmented
          choices={[
            { value: "map", label: "Map" },
            { value: "table", label: "Table" },
          ]}
          label="Show"
          onChange={(next) => change({ view: next === "map" ? undefined : next })}
          value={view}
        />
        <Segmented
          choices={[
            {
              value: "torus",
              label: "Coordinates",
              disabled: !coordinates,
              title: coordinates ? "" : "Coordinates not reported",
            },
            { value: "host", label: "Host" },
            { value: "replica", label: "Replica" },
          ]}
          label="Layout"
          onChange={(next) => change({ layout: next })}
          value={layout.kind}
        />
        <Segmented
          choices={[
            { value: "replica", label: "Replica" },
            { value: "state", label: "State" },
            { value: "host", label: "Host" },
          ]}
          label="Colour"
          onChange={(next) => change({ color: next === "replica" ? undefined : next })}
          value={color}
        />
      </div>
      <div className="grid gap-x-8 gap-y-6 xl:grid-cols-[minmax(0,1fr)_280px]">
        <div className="min-w-0" ref={box}>
          {view === "table" ? (
            <DeviceTable onSelect={select} paints={paints} placement={placement} selected={sel} />
          ) : (
            width > 0 && (
              <>
                <DeviceMap
                  layout={layout}
                  onSelect={select}
                  paints={paints}
                  placement={placement}
                  planned={!placement.confirmed && !scene.ended}
                  selected={sel}
                  storage={storage}
                />
                <p className="mt-3 text-muted text-xs">{caption(layout, scene, coordinates)}</p>
              </>
            )
          )}
        </div>
        <div className="xl:border-line xl:border-l xl:pl-6">
          <Summary paints={paints} placement={placement} selected={sel} />
        </div>
      </div>
    </div>
  );
}

/** What the map leaves out or was not told. */
function caption(layout: Layout, { placement }: Scene, coordinates: boolean): string {
  const devices = placement.devices.length;
  const parts = [`${formatInteger(devices)} ${devices === 1 ? "device" : "devices"}`];
  if (placement.devices.every((device) => device.simulated)) parts.push("simulated on CPU");
  if (!coordinates) parts.push("coordinates not reported");
  if (layout.rails === "ring") parts.push("the ring is the all-reduce that keeps the copies equal");
  const hosts = new Set(placement.devices.map((device) => device.host)).size;
  const crossing = crossingText(placement);
  if (layout.kind === "host" && hosts > 1 && crossing) parts.push(`lines between hosts: ${crossing}`);
  else if (layout.rails === "ring" && layout.kind === "host" && hosts > 1 && crossesHosts(placement) === null)
    parts.push("between hosts it crosses the network");
  if (layout.rails === "bus") parts.push("arrows in: values, arrows out: gradients");
  return parts.join(" · ");
}
