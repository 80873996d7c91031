import type { Device } from "@/api/schema";
import { deviceName, deviceSentence } from "@/components/devices/device-glyph";
import { classNames } from "@/lib/class-names";
import { hatchOf, inkOn, REPLICA_COLORS } from "@/lib/replica-colors";
import { token, useTheme } from "@/lib/theme";

interface DeviceCellProps {
  device: Device;
  selected: boolean;
  tabStop: boolean;
  onSelect: (sel: string) => void;
  onFocus: (device: string) => void;
}

/** A device: its index above, and in the square the replica that sits on it, in that replica's colour. */
export function DeviceCell({ device, selected, tabStop, onSelect, onFocus }: DeviceCellProps) {
  return (
    <button
      aria-pressed={selected}
      className={classNames(
        "flex flex-col items-center rounded-control p-0.5 outline-offset-0 hover:bg-hover",
        selected && "bg-accent-soft outline-2 outline-accent",
      )}
      data-device={device.id}
      onClick={() => onSelect(`device:${device.id}`)}
      onFocus={() => onFocus(device.id)}
      tabIndex={tabStop ? 0 : -1}
      title={deviceSentence(device)}
      type="button"
    >
      <span className="sr-only">{deviceSentence(device)}</span>
      <span aria-hidden="true" className="text-2xs text-muted leading-4">
        {device.index}
      </span>
      <Square device={device} name={deviceName(device)} />
    </button>
  );
}

function Square({ device, name }: { device: Device; name: string }) {
  useTheme();
  const { state, replica } = device;
  const fill = REPLICA_COLORS[(replica ?? 0) % REPLICA_COLORS.length] ?? "--replica-0";
  const held = state === "HELD";
  return (
    <svg aria-hidden="true" data-name={name} fill="none" height="32" viewBox="0 0 32 32" width="32">
      <rect
        fill={held ? (replica === null ? "var(--line-strong)" : `var(${fill})`) : "none"}
        height="30"
        rx="2.5"
        stroke={held ? "none" : state === "QUARANTINED" ? "var(--bad)" : "var(--line-strong)"}
        width="30"
        x="1"
        y="1"
      />
      {held && replica !== null && hatchOf(replica) > 0 && (
        <path d="M1 22 22 1M11 31 31 11" stroke="var(--bg)" strokeOpacity="0.7" strokeWidth="2" />
      )}
      {held && replica !== null && (
        <text fill={inkOn(token(fill))} fontSize="12" fontWeight="600" textAnchor="middle" x="16" y="20.5">
          {replica}
        </text>
      )}
      {state === "RELEASING" && (
        <path d="M1.5 16h29v13a2 2 0 0 1-2 2h-25a2 2 0 0 1-2-2z" fill="var(--active)" />
      )}
      {state === "QUARANTINED" && <path d="m9 9 14 14M23 9 9 23" stroke="var(--bad)" strokeWidth="1.6" />}
    </svg>
  );
}
