import type { Device } from "@/api/schema";
import { stateWord } from "@/components/ui/state-badge";

/** The name of a device as JAX counts it: `cpu:3`. */
export function deviceName(device: Pick<Device, "platform" | "index">): string {
  return `${device.platform}:${device.index}`;
}

/** What a device is doing, in words. */
export function deviceSentence(device: Device): string {
  const holder = device.job
    ? ` by ${device.job}${device.replica === null ? "" : `, replica ${device.replica}`}`
    : "";
  return `${deviceName(device)} on ${device.host_name}: ${stateWord(device.state).toLowerCase()}${holder}`;
}

/** One device as a square: filled when held, empty when free, half when releasing, crossed when quarantined. */
export function DeviceGlyph({ device, size = 14 }: { device: Pick<Device, "state">; size?: number }) {
  const { state } = device;
  return (
    <svg aria-hidden="true" className="shrink-0" fill="none" height={size} viewBox="0 0 14 14" width={size}>
      <rect
        fill={state === "HELD" ? "var(--active)" : "none"}
        height="12.6"
        rx="1.6"
        stroke={
          state === "HELD" ? "var(--active)" : state === "QUARANTINED" ? "var(--bad)" : "var(--line-strong)"
        }
        strokeWidth="1.2"
        width="12.6"
        x="0.7"
        y="0.7"
      />
      {state === "RELEASING" && <path d="M1 13V7h12v6z" fill="var(--active)" />}
      {state === "QUARANTINED" && (
        <path d="m3.5 3.5 7 7M10.5 3.5l-7 7" stroke="var(--bad)" strokeWidth="1.4" />
      )}
    </svg>
  );
}
