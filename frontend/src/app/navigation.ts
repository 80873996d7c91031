import type { IconName } from "@/components/ui/icons";

/** The dashboard's places: the rail, the palette and the `g` shortcuts are made of this list. */
export const PLACES = [
  { to: "/", label: "Overview", icon: "overview", keys: "g o" },
  { to: "/runs", label: "Runs", icon: "runs", keys: "g r" },
  { to: "/jobs", label: "Jobs", icon: "jobs", keys: "g j" },
  { to: "/batches", label: "Sweeps", icon: "batches", keys: "g b" },
  { to: "/devices", label: "Devices", icon: "devices", keys: "g d" },
  { to: "/usage", label: "Usage", icon: "usage", keys: "g u" },
  { to: "/alerts", label: "Alerts", icon: "alerts", keys: "g a" },
  { to: "/submit", label: "Submit", icon: "submit", keys: "g s" },
] as const satisfies readonly { to: string; label: string; icon: IconName; keys: string }[];
