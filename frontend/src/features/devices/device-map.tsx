import { Fragment, type KeyboardEvent, memo, useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { Device, Host } from "@/api/schema";
import { RunLink } from "@/components/runs/run-columns";
import { NearScreen } from "@/components/ui/near-screen";
import { StateIcon } from "@/components/ui/state-badge";
import { count } from "@/lib/format";
import { DeviceCell } from "./device-cell";

const STEP: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1 };

interface DeviceMapProps {
  hosts: readonly Host[];
  devices: readonly Device[];
  selected: string | undefined;
  onSelect: (sel: string | undefined) => void;
}

/** Up to this many hosts all are in the document, and the browser's own find sees them. */
const ALL_UP_TO = 32;
const LINE_PX = 84;
const CELLS_A_ROW = 17;
const ROW_PX = 56;

/** Every device as a cell, a line per host. One stop of the tab key; the arrows move inside. */
export function DeviceMap({ hosts, devices, selected, onSelect }: DeviceMapProps) {
  const [focused, setFocused] = useState<string | null>(null);
  const byHost = useMemo(() => Map.groupBy(devices, (device) => device.host), [devices]);
  const stop = focused && devices.some((device) => device.id === focused) ? focused : devices[0]?.id;
  const choose = useRef(onSelect);
  useEffect(() => {
    choose.current = onSelect;
  });
  const select = useCallback((sel: string) => choose.current(sel), []);
  if (devices.length === 0) return <p className="py-3 text-muted">No device matches.</p>;
  const lines = hosts.flatMap((host) => {
    const own = byHost.get(host.id);
    return own ? [{ host, own, of: within(own, selected), stop: within(own, stop && `device:${stop}`) }] : [];
  });
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the arrows move between the buttons inside
    <div onKeyDown={moveFocus}>
      {lines.map((line) => {
        const drawn = (
          <HostLine
            devices={line.own}
            host={line.host}
            onFocus={setFocused}
            onSelect={select}
            selected={line.of}
            stop={line.stop}
          />
        );
        if (lines.length <= ALL_UP_TO) return <Fragment key={line.host.id}>{drawn}</Fragment>;
        return (
          <NearScreen
            estimatePx={LINE_PX + ROW_PX * Math.floor((line.own.length - 1) / CELLS_A_ROW)}
            key={line.host.id}
          >
            {drawn}
          </NearScreen>
        );
      })}
    </div>
  );
}

/** `sel` if it names one of the devices: a line is drawn again only where what it shows has changed. */
function within(devices: readonly Device[], sel: string | undefined): string | undefined {
  return devices.some((device) => sel === `device:${device.id}`) ? sel : undefined;
}

function moveFocus(event: KeyboardEvent<HTMLElement>) {
  const step = STEP[event.key];
  if (step === undefined) return;
  const cells = [...event.currentTarget.querySelectorAll<HTMLElement>("[data-device]")];
  const at = cells.indexOf(document.activeElement as HTMLElement);
  if (at < 0) return;
  event.preventDefault();
  cells[Math.min(cells.length - 1, Math.max(0, at + step))]?.focus();
}

interface HostLineProps {
  host: Host;
  devices: readonly Device[];
  selected: string | undefined;
  stop: string | undefined;
  onSelect: (sel: string) => void;
  onFocus: (device: string) => void;
}

const HostLine = memo(function HostLine({ host, devices, selected, stop, onSelect, onFocus }: HostLineProps) {
  return (
    <div className="flex flex-wrap items-start gap-x-6 gap-y-2 border-line border-b py-3">
      <HostName devices={devices} host={host} onSelect={onSelect} />
      <div className="flex min-w-0 flex-1 flex-wrap gap-1">
        {devices.map((device) => (
          <DeviceCell
            device={device}
            key={device.id}
            onFocus={onFocus}
            onSelect={onSelect}
            selected={selected === `device:${device.id}`}
            tabStop={stop === `device:${device.id}`}
          />
        ))}
      </div>
      <Holders devices={devices} />
    </div>
  );
});

function HostName({
  host,
  devices,
  onSelect,
}: {
  host: Host;
  devices: readonly Device[];
  onSelect: (sel: string) => void;
}) {
  const simulated = devices.some((device) => device.simulated);
  const kinds = [...new Set(devices.map((device) => device.kind))];
  return (
    <div className="w-44 shrink-0">
      <button
        className="flex max-w-full items-center gap-1.5 hover:underline"
        onClick={() => onSelect(`host:${host.id}`)}
        type="button"
      >
        <StateIcon size={10} state={host.state} />
        <span className="truncate font-strong">{host.name}</span>
      </button>
      <div className="truncate text-muted text-xs" title={kinds.join(", ")}>
        {simulated ? `${count(devices.length, "simulated device")}` : kinds.join(", ")}
      </div>
    </div>
  );
}

/** The runs that hold devices of this line, so that the replica numbers in the cells can be read. */
function Holders({ devices }: { devices: readonly Device[] }) {
  const held = Map.groupBy(
    devices.filter((device) => device.run !== null),
    (device) => device.run,
  );
  if (held.size === 0) return null;
  return (
    <ul className="w-64 shrink-0 max-lg:w-full">
      {[...held].map(
        ([run, own]) =>
          run && (
            <li className="flex items-baseline justify-between gap-3" key={run}>
              <RunLink run={{ id: run, job: own[0]?.job ?? "run" }} />
              <span className="whitespace-nowrap text-muted text-xs">{count(own.length, "device")}</span>
            </li>
          ),
      )}
    </ul>
  );
}
