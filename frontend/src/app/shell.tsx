import { CSPProvider } from "@base-ui/react/csp-provider";
import { Outlet } from "@tanstack/react-router";
import { lazy, Suspense, useEffect } from "react";
import { useTellsOfAny } from "@/lib/alerts/choice";
import { watchVisibility } from "@/lib/live";
import { watchKeyboard } from "@/lib/shortcuts";
import { Notices } from "./notices";
import { Rail } from "./rail";
import { TopBar } from "./top-bar";

const BrowserAlerts = lazy(() => import("./browser-alerts"));

/** What stands around every page. */
export function Shell() {
  useEffect(watchKeyboard, []);
  useEffect(watchVisibility, []);
  const alerts = useTellsOfAny();
  return (
    <CSPProvider disableStyleElements>
      <a
        className="fixed top-1 left-1 z-50 -translate-y-16 rounded-control bg-accent px-3 py-1.5 text-on-accent focus:translate-y-0"
        href="#main"
      >
        Skip to content
      </a>
      <Notices />
      <Suspense>{alerts && <BrowserAlerts />}</Suspense>
      <div className="flex min-h-dvh max-md:flex-col">
        <Rail />
        <div className="flex min-w-0 flex-1 flex-col">
          <TopBar />
          <main className="flex min-w-0 flex-1 flex-col outline-none" id="main" tabIndex={-1}>
            <Outlet />
          </main>
        </div>
      </div>
    </CSPProvider>
  );
}
