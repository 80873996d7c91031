import { useSyncExternalStore } from "react";
import { onThemeChange } from "@/lib/theme";

/** The theme on screen; a component that reads tokens for a drawing depends on it and draws again when it changes. */
export function useTheme(): string {
  return useSyncExternalStore(onThemeChange, () => document.documentElement.dataset.theme ?? "light");
}
