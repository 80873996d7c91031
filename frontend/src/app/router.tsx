import type { QueryClient } from "@tanstack/react-query";
import {
  createRootRouteWithContext,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  redirect,
  useMatchRoute,
} from "@tanstack/react-router";
import { overviewQuery, runQuery } from "@/api/queries";
import { batchSearch } from "@/features/batches/search";
import { compareSearch } from "@/features/compare/search";
import { devicesSearch } from "@/features/devices/search";
import { jobSearch } from "@/features/jobs/search";
import { OverviewPage } from "@/features/overview/overview-page";
import {
  logsSearch,
  metricsSearch,
  placementSearch,
  reductionsSearch,
  timeSearch,
} from "@/features/run/search";
import { runsSearch } from "@/features/runs/search";
import { submitSearch } from "@/features/submit/search";
import { usageSearch } from "@/features/usage/search";
import { nonEmpty, optional, parseSearch, stringifySearch } from "@/lib/search-params";
import { compareAhead, goAhead, metricsAhead } from "./ahead";
import { NotFound, PageError } from "./fallbacks";
import { Shell } from "./shell";

const rootRoute = createRootRouteWithContext<{ queryClient: QueryClient }>()({
  component: Root,
  notFoundComponent: NotFound,
});

function Root() {
  const matches = useMatchRoute();
  return matches({ to: "/login" }) ? <Outlet /> : <Shell />;
}

const loginRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/login",
  validateSearch: (search: Record<string, unknown>) => optional({ next: nonEmpty(search.next) }),
  component: lazyRouteComponent(() => import("@/features/login/login-page"), "LoginPage"),
});

const overviewRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/",
  shouldReload: false,
  loader: ({ context, preload }) => {
    if (!preload) goAhead(context.queryClient.prefetchQuery(overviewQuery));
  },
  component: OverviewPage,
});

const runsRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/runs",
  validateSearch: runsSearch,
  component: lazyRouteComponent(() => import("@/features/runs/runs-page"), "RunsPage"),
});

const jobsRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/jobs",
  component: lazyRouteComponent(() => import("@/features/jobs/jobs-page"), "JobsPage"),
});

const jobRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/jobs/$name",
  validateSearch: jobSearch,
  component: lazyRouteComponent(() => import("@/features/jobs/job-page"), "JobPage"),
});

const batchesRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/batches",
  component: lazyRouteComponent(() => import("@/features/batches/batches-page"), "BatchesPage"),
});

const batchRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/batches/$batchId",
  validateSearch: batchSearch,
  component: lazyRouteComponent(() => import("@/features/batches/batch-page"), "BatchPage"),
});

const compareRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/compare",
  validateSearch: compareSearch,
  shouldReload: false,
  loader: ({ context, location, preload }) => {
    if (!preload) goAhead(compareAhead(context.queryClient, compareSearch(location.search)));
  },
  component: lazyRouteComponent(() => import("@/features/compare/compare-page"), "ComparePage"),
});

const devicesRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/devices",
  validateSearch: devicesSearch,
  component: lazyRouteComponent(() => import("@/features/devices/devices-page"), "DevicesPage"),
});

const usageRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/usage",
  validateSearch: usageSearch,
  component: lazyRouteComponent(() => import("@/features/usage/usage-page"), "UsagePage"),
});

const alertsRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/alerts",
  component: lazyRouteComponent(() => import("@/features/alerts/alerts-page"), "AlertsPage"),
});

const submitRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/submit",
  validateSearch: submitSearch,
  component: lazyRouteComponent(() => import("@/features/submit/submit-page"), "SubmitPage"),
});

const runRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/runs/$runId",
  shouldReload: false,
  loader: ({ context, params, preload }) => {
    if (!preload) goAhead(context.queryClient.prefetchQuery(runQuery(params.runId)));
  },
  component: lazyRouteComponent(() => import("@/features/run/run-page"), "RunPage"),
});

const runIndexRoute = createRoute({
  getParentRoute: () => runRoute,
  path: "/",
  beforeLoad: ({ params }) => {
    throw redirect({ to: "/runs/$runId/metrics", params, replace: true });
  },
});

const placementRoute = createRoute({
  getParentRoute: () => runRoute,
  path: "/placement",
  validateSearch: placementSearch,
  component: lazyRouteComponent(() => import("@/features/run/placement/placement-tab"), "PlacementTab"),
});

const reductionsRoute = createRoute({
  getParentRoute: () => runRoute,
  path: "/reductions",
  validateSearch: reductionsSearch,
  component: lazyRouteComponent(() => import("@/features/run/reductions/reductions-tab"), "ReductionsTab"),
});

const mediaRoute = createRoute({
  getParentRoute: () => runRoute,
  path: "/media",
  validateSearch: reductionsSearch,
  component: lazyRouteComponent(() => import("@/features/run/media/media-tab"), "MediaTab"),
});

const metricsRoute = createRoute({
  getParentRoute: () => runRoute,
  path: "/metrics",
  validateSearch: metricsSearch,
  shouldReload: false,
  loader: ({ context, params, location, preload }) => {
    if (!preload) goAhead(metricsAhead(context.queryClient, params.runId, metricsSearch(location.search)));
  },
  component: lazyRouteComponent(() => import("@/features/run/metrics/metrics-tab"), "MetricsTab"),
});

/** Where the curves were before they had a tab of their own. */
const throughputRoute = createRoute({
  getParentRoute: () => runRoute,
  path: "/throughput",
  validateSearch: metricsSearch,
  beforeLoad: ({ params, search }) => {
    // Time was counted from the start of the run then.
    const x = search.x === "time" ? "relative" : search.x;
    throw redirect({ to: "/runs/$runId/metrics", params, search: { ...search, x }, replace: true });
  },
});

const logsRoute = createRoute({
  getParentRoute: () => runRoute,
  path: "/logs",
  validateSearch: logsSearch,
  component: lazyRouteComponent(() => import("@/features/run/logs/logs-tab"), "LogsTab"),
});

const timeRoute = createRoute({
  getParentRoute: () => runRoute,
  path: "/time",
  validateSearch: timeSearch,
  component: lazyRouteComponent(() => import("@/features/run/time/time-tab"), "TimeTab"),
});

const planRoute = createRoute({
  getParentRoute: () => runRoute,
  path: "/plan",
  component: lazyRouteComponent(() => import("@/features/run/plan/plan-tab"), "PlanTab"),
});

const attemptsRoute = createRoute({
  getParentRoute: () => runRoute,
  path: "/attempts",
  component: lazyRouteComponent(() => import("@/features/run/attempts/attempts-tab"), "AttemptsTab"),
});

const routeTree = rootRoute.addChildren([
  loginRoute,
  overviewRoute,
  runsRoute,
  jobsRoute,
  jobRoute,
  batchesRoute,
  batchRoute,
  compareRoute,
  devicesRoute,
  usageRoute,
  alertsRoute,
  submitRoute,
  runRoute.addChildren([
    runIndexRoute,
    metricsRoute,
    placementRoute,
    reductionsRoute,
    mediaRoute,
    throughputRoute,
    logsRoute,
    timeRoute,
    planRoute,
    attemptsRoute,
  ]),
]);

export function createAppRouter(queryClient: QueryClient) {
  return createRouter({
    routeTree,
    context: { queryClient },
    defaultPreload: "intent",
    defaultErrorComponent: PageError,
    parseSearch,
    stringifySearch,
    scrollRestoration: true,
  });
}

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof createAppRouter>;
  }
}
