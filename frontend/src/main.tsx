import "./styles/app.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode, startTransition } from "react";
import { createRoot } from "react-dom/client";
// The libraries have run by now; next comes the page's own code.
import "./app/after-libraries";
import { forgetAhead } from "./api/ahead";
import { firstPage } from "./app/first-page";
import { createQueryClient } from "./app/query-client";
import { createAppRouter } from "./app/router";
import { live } from "./lib/live";
import { nextTask } from "./lib/next-task";
import { onSessionChange } from "./lib/session-change";
import { askForFonts, watchSystemTheme } from "./lib/theme";

askForFonts();
await nextTask();
const queryClient = createQueryClient(() => {
  if (location.pathname === "/login") return;
  void router.navigate({ to: "/login", search: { next: location.pathname + location.search } });
});
const router = createAppRouter(queryClient);
watchSystemTheme();
onSessionChange(() => {
  forgetAhead();
  live.restart();
  void queryClient.resetQueries();
});

await nextTask();
void firstPage(router).then(() => {
  const root = document.getElementById("root");
  if (!root) throw new Error("index.html has no #root");
  // As a transition it is rendered a few milliseconds at a time, and what a person does meanwhile is heard.
  startTransition(() =>
    createRoot(root).render(
      <StrictMode>
        <QueryClientProvider client={queryClient}>
          <RouterProvider router={router} />
        </QueryClientProvider>
      </StrictMode>,
    ),
  );
});
