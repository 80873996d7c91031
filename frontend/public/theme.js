// Runs before the first paint, so that the page never flashes in the wrong theme. A file, as the policy allows no inline script.
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
