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
    if ((!tab || tab === "metrics") && !search.has("q"))
      paths.push(...metricsOf(`/api/v1/runs/${id}/metrics`));
  }
  if (place === "compare" && search.has("batch") && !search.has("runs"))
    paths.push(`/api/v1/batches/${encodeURIComponent(search.get("batch"))}/outcomes?limit=400`);
  // As src/app/ahead.ts asks: a page whose address says nothing else begins with these curves, as wide as its window has room.
  function metricsOf(base) {
    const other = ["x", "from", "to", "attempt", "wide"].some((name) => search.has(name));
    const [, rail] = [
      [1280, 200],
      [768, 48],
      [0, 0],
    ].find(([least]) => innerWidth >= least);
    const page = innerWidth - rail - (innerWidth >= 1024 ? 48 : 32);
    const share = page >= 1024 ? page / 3 : page >= 700 ? page / 2 : page;
    const buckets = Math.min(1200, Math.max(200, Math.ceil(share / 400) * 200));
    const curves = other ? [] : [`${base}?x=step&buckets=${buckets}&first=12`];
    return [`${base}/groups`, `${base}/names?limit=120`, ...curves];
  }
  window.askedAhead = new Map(paths.map((path) => [path, fetch(path, { headers: { "X-Drumline": "1" } })]));
  // Whoever takes an answer hears of its failure; of one that nobody takes nobody needs to.
  for (const answer of window.askedAhead.values()) answer.catch(() => undefined);
})();
