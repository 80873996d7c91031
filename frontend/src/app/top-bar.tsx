import { Suspense, useEffect, useState } from "react";
import { IconButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icons";
import { Keys } from "@/components/ui/keys";
import { comesLater } from "@/lib/comes-later";
import { useShortcut } from "@/lib/shortcuts";
import { Breadcrumb } from "./breadcrumb";
import { LiveChip } from "./live-chip";
import { ThemeSwitch } from "./theme-switch";

const [Palette, loadPalette] = comesLater(() => import("./palette"));
const [KeyboardSheet, loadSheet] = comesLater(() => import("./keyboard-sheet"));

export function TopBar() {
  const [open, setOpen] = useState<"palette" | "keyboard" | null>(null);
  useShortcut({ keys: "mod+k", meaning: "Command palette", group: "View" }, () => setOpen("palette"));
  useShortcut({ keys: "?", meaning: "This sheet", group: "View" }, () => setOpen("keyboard"));
  usePrefetch();
  return (
    <header className="sticky top-0 z-10 flex h-11 items-center gap-1 border-line border-b bg-bg px-4 max-md:static lg:px-6">
      <Breadcrumb />
      <LiveChip />
      <button
        className="mx-2 flex h-7 items-center gap-2 rounded-control border border-line px-2 text-muted hover:border-line-strong hover:text-text lg:w-52"
        onClick={() => setOpen("palette")}
        type="button"
      >
        <Icon name="search" size={14} />
        <span className="flex-1 text-left max-lg:sr-only">Find or do</span>
        <span className="max-lg:hidden">
          <Keys keys="mod+k" />
        </span>
      </button>
      <IconButton className="max-md:hidden" label="Keyboard shortcuts" onClick={() => setOpen("keyboard")}>
        <Icon name="keyboard" />
      </IconButton>
      <ThemeSwitch />
      <Suspense>
        {open === "palette" && <Palette onClose={() => setOpen(null)} />}
        {open === "keyboard" && <KeyboardSheet onClose={() => setOpen(null)} />}
      </Suspense>
    </header>
  );
}

function prefetch(): void {
  void loadPalette();
  void loadSheet();
}

/** The palette's code is fetched when the browser is idle: its first opening would take 300 ms otherwise. */
function usePrefetch(): void {
  useEffect(() => {
    if (!("requestIdleCallback" in window)) return;
    const handle = window.requestIdleCallback(prefetch, { timeout: 5_000 });
    return () => window.cancelIdleCallback(handle);
  }, []);
}
