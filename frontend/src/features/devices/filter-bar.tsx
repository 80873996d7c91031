import { getRouteApi } from "@tanstack/react-router";
import type { Device } from "@/api/schema";
import { classNames } from "@/lib/class-names";
import { formatInteger } from "@/lib/format";
import { DEVICE_FILTERS } from "./search";
import { isShown } from "./selection";

const route = getRouteApi("/devices");

/** Narrows the map: by state, and by platform where there is more than one. */
export function FilterBar({ devices }: { devices: readonly Device[] }) {
  const { show, platform } = route.useSearch();
  const platforms = [...new Set(devices.map((device) => device.platform))].sort();
  return (
    <div className="flex flex-wrap">
      {DEVICE_FILTERS.map((name) => (
        <Filter
          key={name}
          label={name}
          n={devices.filter((device) => isShown(device, name, platform)).length}
          on={show === name}
          search={{ show: show === name ? undefined : name }}
        />
      ))}
      {platforms.length > 1 &&
        platforms.map((name) => (
          <Filter
            key={name}
            label={name.toUpperCase()}
            n={devices.filter((device) => isShown(device, show, name)).length}
            on={platform === name}
            search={{ platform: platform === name ? undefined : name }}
          />
        ))}
    </div>
  );
}

interface FilterProps {
  label: string;
  n: number;
  on: boolean;
  search: { show?: (typeof DEVICE_FILTERS)[number] | undefined; platform?: Device["platform"] | undefined };
}

function Filter({ label, n, on, search }: FilterProps) {
  const navigate = route.useNavigate();
  return (
    <button
      aria-pressed={on}
      className={classNames(
        "flex h-7 items-center gap-1.5 rounded-control px-2 first-letter:capitalize",
        on ? "bg-accent-soft text-text" : "text-muted hover:bg-hover hover:text-text",
      )}
      onClick={() => void navigate({ search: (old) => ({ ...old, ...search }), replace: true })}
      type="button"
    >
      <span className="first-letter:capitalize">{label}</span>
      <span className="text-muted text-xs">{formatInteger(n)}</span>
    </button>
  );
}
