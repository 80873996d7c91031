"""`make bench-ui`: how soon the dashboard draws curves, in a browser that is held back. JSON in build/bench/ui.json.

A real `drumline up` with real runs, Chromium at a quarter of the processor's speed, 10 Mbit/s and 40 ms of latency,
both by the DevTools protocol. Each case is repeated, and its median is what counts:

- `entry`: bytes of the scripts that the first page loads, as they are transferred;
- `overview`: the first visit of Overview, nothing in the cache: until a row of runs is there, the largest paint, and
  how long tasks block the page beyond 50 ms each, until none has come for a second;
- `palette`: from the first press of its keys until it takes text;
- `metrics`: a run of 20 000 steps and 10 metrics, from going there until every chart in the window has ink;
- `zoom`: frames between the press and one second after the release of a range that is drawn over a chart;
- `compare`: 50 runs, until the charts in the window have ink.

A chart counts as drawn by its pixels in the colours of curves, so that an empty one cannot look fast.
"""

import json
import os
import shutil
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from drumline import Client
from support.deployment import ROOT, Deployment

STEPS, NAMES, RUNS, ROUNDS = 20_000, 10, 50, 5
SLOWER = 4
NETWORK = {"offline": False, "latency": 40, "downloadThroughput": 10e6 / 8, "uploadThroughput": 10e6 / 8}
WAIT_MS = 120_000
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
BUDGETS = {
    "entry_kb": 150, "row_ms": 1300, "lcp_ms": 1300, "tbt_ms": 300, "palette_ms": 150,
    "metrics_ms": 1500, "zoom_p95_ms": 25, "compare_ms": 2000,
}  # fmt: skip
PROGRAM = """
import math


def main(run, *, seed: int = 0, steps: int = 100, names: int = 1):
    for step in range(steps):
        for name in range(names):
            value = math.exp(-step * (name + 1) / steps) + 0.1 * math.sin(step * (seed + 1))
            run.log(step=step, **{f"m/{name}": value})
"""
DRAWN = """least => {
  const seen = [...document.querySelectorAll("[data-metric]")].filter(cell => {
    const box = cell.getBoundingClientRect();
    return box.top < innerHeight && box.bottom > 0;
  });
  const hasInk = cell => {
    const canvas = cell.querySelector("canvas");
    if (!canvas || !canvas.width) return false;
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let ink = 0;
    for (let at = 0; at < pixels.length; at += 4) {
      const [red, green, blue] = pixels.subarray(at, at + 3);
      if (pixels[at + 3] > 40 && Math.max(red, green, blue) - Math.min(red, green, blue) > 40) ink += 1;
    }
    return ink > 300;
  };
  return seen.length >= least && seen.every(hasInk) ? performance.now() : false;
}"""
FRAMES = """() => {
  window.frameTimes = [];
  let before = performance.now();
  const next = now => {
    window.frameTimes.push(now - before);
    before = now;
    window.frame = requestAnimationFrame(next);
  };
  window.frame = requestAnimationFrame(next);
}"""

WATCH = """() => {
  window.seen = { lcp: 0, tbt: 0, row: 0, last: 0 };
  new PerformanceObserver(list => {
    for (const one of list.getEntries()) window.seen.lcp = one.startTime;
  }).observe({ type: "largest-contentful-paint", buffered: true });
  new PerformanceObserver(list => {
    for (const one of list.getEntries()) {
      window.seen.tbt += one.duration - 50;
      window.seen.last = one.startTime + one.duration;
    }
  }).observe({ type: "longtask", buffered: true });
  const look = () => {
    if (document.querySelector("table[aria-label='Recent runs'] tbody tr a")) window.seen.row = performance.now();
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""
IS_QUIET = "() => window.seen.row && performance.now() - Math.max(window.seen.row, window.seen.last) > 1000"
TAKES_TEXT = """() => {
  const input = document.querySelector("[cmdk-input]");
  return input && document.activeElement === input ? performance.now() - window.pressed : false;
}"""


@dataclass(frozen=True)
class World:
    """What is measured."""

    url: str
    run: str
    batch: str


def main() -> None:
    """Runs every case and prints what it took beside its budget."""
    with tempfile.TemporaryDirectory() as room:
        deployment = Deployment.start(Path(room) / "data")
        try:
            deployment.wait_for_devices()
            report = _measure(deployment, _fill(deployment, Path(room) / "curves.py"))
        finally:
            deployment.stop()
    path = ROOT / "build" / "bench" / "ui.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    for name, budget in BUDGETS.items():
        print(f"{name:12} {report[name]:8.1f} of {budget}")
    print(f"load {report['load_before']} to {report['load_after']} on {os.cpu_count()} cores; {path}")


def _fill(deployment: Deployment, program: Path) -> World:
    program.write_text(PROGRAM)
    with Client(deployment.url, deployment.token) as client:
        large = client.submit(program, parameters={"steps": STEPS, "names": NAMES})
        batch = client.sweep(program, {"seed": list(range(RUNS))}, parameters={"steps": 1000, "names": 2})
        assert large.wait(timeout=600).state == "SUCCEEDED"
        assert batch.wait(timeout=1800).details.states == {"SUCCEEDED": RUNS}
        return World(deployment.url, large.id, batch.id)


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
"""Whole ones first, as users have them."""


def _measure(deployment: Deployment, world: World) -> dict[str, Any]:
    before = os.getloadavg()
    path = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        entry = _entry_kb(browser, deployment)
        visits = [_visit(browser, deployment) for _ in range(ROUNDS)]
        metrics = [_open(browser, deployment, f"/runs/{world.run}/metrics", 4) for _ in range(ROUNDS)]
        zooms = [_zoom(browser, deployment, f"/runs/{world.run}/metrics") for _ in range(ROUNDS)]
        compare = [_open(browser, deployment, f"/compare?batch={world.batch}", 2) for _ in range(ROUNDS)]
        browser.close()
    return {
        "entry_kb": entry,
        **{name: statistics.median(visit[name] for visit in visits) for name in visits[0]},
        "metrics_ms": statistics.median(metrics),
        "zoom_p95_ms": statistics.median(zooms),
        "compare_ms": statistics.median(compare),
        "rounds": {"visits": visits, "metrics_ms": metrics, "zoom_p95_ms": zooms, "compare_ms": compare},
        "steps": STEPS, "names": NAMES, "runs": RUNS, "slower": SLOWER, "network": NETWORK,
        "load_before": before, "load_after": os.getloadavg(), "cores": os.cpu_count(),
    }  # fmt: skip


def _context(browser: Browser, deployment: Deployment) -> BrowserContext:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    with deployment.http() as http:
        code = http.post("/login-codes").raise_for_status().json()["code"]
    own = {"Origin": deployment.url, "X-Drumline": "1"}
    assert context.request.post(f"{deployment.url}/api/v1/sessions", data={"code": code}, headers=own).ok
    return context


def _held_back(context: BrowserContext) -> Page:
    """A page with what a browser has from an earlier visit, slowed down."""
    page = context.new_page()
    devtools = context.new_cdp_session(page)
    devtools.send("Network.enable")
    devtools.send("Network.emulateNetworkConditions", NETWORK)
    devtools.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    return page


def _entry_kb(browser: Browser, deployment: Deployment) -> float:
    context = _context(browser, deployment)
    page = context.new_page()
    page.goto(deployment.url, wait_until="load")
    # Chunks of other pages are fetched when the pointer comes near a link, and are not the entry's.
    total = page.evaluate(
        """() => performance.getEntriesByType("resource").filter(one => one.name.endsWith(".js"))
        .reduce((sum, one) => sum + one.encodedBodySize, 0)"""
    )
    context.close()
    return float(total) / 1000


def _visit(browser: Browser, deployment: Deployment) -> dict[str, float]:
    """Overview for the first time, then the palette."""
    context = _context(browser, deployment)
    page = _held_back(context)
    page.add_init_script(f"({WATCH})()")
    page.goto(deployment.url, wait_until="commit")
    page.wait_for_function(IS_QUIET, timeout=WAIT_MS, polling=50)
    seen = page.evaluate("() => window.seen")
    page.evaluate("() => addEventListener('keydown', () => { window.pressed ??= performance.now() }, true)")
    page.keyboard.press("ControlOrMeta+k")
    opened = page.wait_for_function(TAKES_TEXT, timeout=WAIT_MS).json_value()
    context.close()
    return {"row_ms": seen["row"], "lcp_ms": seen["lcp"], "tbt_ms": seen["tbt"], "palette_ms": float(opened)}


def _open(browser: Browser, deployment: Deployment, path: str, least: int) -> float:
    """Milliseconds from going there until all charts in the window have ink, with scripts in the cache."""
    context = _context(browser, deployment)
    warm = context.new_page()
    warm.goto(f"{deployment.url}{path}")
    warm.wait_for_function(DRAWN, arg=least, timeout=WAIT_MS)
    warm.close()
    page = _held_back(context)
    page.goto(f"{deployment.url}{path}", wait_until="commit")
    took = float(page.wait_for_function(DRAWN, arg=least, timeout=WAIT_MS, polling=50).json_value())
    context.close()
    return took


def _zoom(browser: Browser, deployment: Deployment, path: str) -> float:
    """The 95th of 100 frame times while a range is drawn and its charts are drawn again."""
    context = _context(browser, deployment)
    page = _held_back(context)
    page.goto(f"{deployment.url}{path}")
    page.wait_for_function(DRAWN, arg=4, timeout=WAIT_MS)
    box = page.locator(".u-over").first.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 40, middle)
    page.evaluate(FRAMES)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, middle, steps=30)
    page.mouse.up()
    page.wait_for_function("end => performance.now() > end", arg=page.evaluate("() => performance.now() + 1000"))
    frames = sorted(page.evaluate("() => { cancelAnimationFrame(window.frame); return window.frameTimes }"))
    context.close()
    return float(frames[int(len(frames) * 0.95)])


if __name__ == "__main__":
    main()
