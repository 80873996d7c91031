// Runs before the page's own code. A file, as the policy allows no inline script.

// The theme, before the first paint, so that the page never flashes in the wrong one.
(() => {
  let choice = "system";
  try {
    choice = localStorage.getItem("drumline.theme") ?? "system";
  } catch {
    // Storage may be switched off; the system's theme holds then.
  }
  const dark =
    choice === "dark" || (choice !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();

// What the page shows first is asked for while its code is on the way; src/api/ahead.ts hands the answers over.
(() => {
  const [, place, id, tab] = location.pathname.split("/");
  const search = new URLSearchParams(location.search);
  const paths = [];
  if (!place) paths.push("/api/v1/overview");
  if (place === "runs" && id) {
    paths.push(`/api/v1/runs/${id}`);
    if ((!tab || tab === "metrics") && !search.has("q")) paths.push(`/api/v1/runs/${id}/metrics/groups`);
  }
  if (place === "compare" && search.has("batch") && !search.has("runs"))
    paths.push(`/api/v1/batches/${encodeURIComponent(search.get("batch"))}/outcomes?limit=400`);
  window.askedAhead = new Map(paths.map((path) => [path, fetch(path, { headers: { "X-Drumline": "1" } })]));
  // Whoever takes an answer hears of its failure; of one that nobody takes nobody needs to.
  for (const answer of window.askedAhead.values()) answer.catch(() => undefined);
})();
