"""`make bench-ui`: how soon the dashboard draws curves, in a browser that is held back. JSON in build/bench/ui.json.

A real `drumline up` with real runs, Chromium at a quarter of the processor's speed, 10 Mbit/s and 40 ms of latency,
both by the DevTools protocol. Each case is repeated, and its median is what counts:

- `entry`: bytes of the scripts that the first page loads, as they are transferred;
- `overview`: the first visit of Overview, nothing in the cache: until a row of runs is there, the largest paint, and
  how long tasks block the page beyond 50 ms each, until none has come for a second;
- `palette`: from the first press of its keys until it takes text;
- `metrics`: a run of 20 000 steps and 10 metrics, from going there until every chart in the window has ink;
- `zoom`: frames between the press and one second after the release of a range that is drawn over a chart;
- `compare`: 50 runs, until the charts in the window have ink;
- `redraw` and `jump`: the map of 10 240 devices drawn again, and a far line of a long log: `bench/ui_large.py`.

A chart counts as drawn by its pixels in the colours of curves, so that an empty one cannot look fast. Beside each time
stands the processor time of the page's main thread (`..._cpu_ms`), of which the load of the machine changes less; it is
that of the slowed browser.

`--before DIR` measures another checkout beside this one, round by round in turns: its environment, server and dashboard
must be built (`make .venv/.dev frontend/dist/index.html`). What it has no page for is left out of the comparison.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from bench.slow_browser import FLAGS, NETWORK, SLOWER, WAIT_MS, held_back, signed_in
from bench.ui_large import LARGE_BUDGETS, measure_large
from support.deployment import ROOT, Deployment

STEPS, NAMES, RUNS, ROUNDS = 20_000, 10, 50, 5
BUDGETS = {
    "entry_kb": 150, "row_ms": 1300, "lcp_ms": 1300, "tbt_ms": 300, "palette_ms": 150,
    "metrics_ms": 1500, "zoom_p95_ms": 25, "compare_ms": 2000, **LARGE_BUDGETS,
}  # fmt: skip
PROGRAM = """
import math


def main(run, *, seed: int = 0, steps: int = 100, names: int = 1):
    for step in range(steps):
        for name in range(names):
            value = math.exp(-step * (name + 1) / steps) + 0.1 * math.sin(step * (seed + 1))
            run.log(step=step, **{f"m/{name}": value})
"""
FILL = """
import sys
from drumline import Client

program, steps, names, runs = sys.argv[1], *map(int, sys.argv[2:])
with Client() as client:
    large = client.submit(program, parameters={"steps": steps, "names": names})
    batch = client.sweep(program, {"seed": list(range(runs))}, parameters={"steps": 1000, "names": 2})
    assert large.wait(timeout=600).state == "SUCCEEDED"
    assert batch.wait(timeout=1800).details.states == {"SUCCEEDED": runs}
print(large.id, batch.id)
"""
DRAWN = """least => {
  const now = performance.now();
  const inWindow = cell => {
    const box = cell.getBoundingClientRect();
    return box.top < innerHeight && box.bottom > 0;
  };
  const places = [...document.querySelectorAll("[data-metric]")];
  const seen = (places.length ? places : [...document.querySelectorAll(".uplot")]).filter(inWindow);
  // What was seen is not looked at again: to read a canvas takes the page's own time.
  const inked = window.inked ??= new WeakSet();
  const hasInk = cell => {
    const canvas = cell.querySelector("canvas");
    if (!canvas || !canvas.width) return false;
    if (inked.has(canvas)) return true;
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let ink = 0;
    for (let at = 0; at < pixels.length && ink <= 300; at += 4) {
      const red = pixels[at], green = pixels[at + 1], blue = pixels[at + 2];
      if (pixels[at + 3] > 40 && Math.max(red, green, blue) - Math.min(red, green, blue) > 40) ink += 1;
    }
    if (ink > 300) inked.add(canvas);
    return ink > 300;
  };
  // The look itself takes time of the page, which is none of the page's.
  return seen.length >= least && seen.every(hasInk) ? now : false;
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
    """What is measured: a deployment with its runs."""

    deployment: Deployment
    run: str
    batch: str
    charts: str
    """The tab of a run with its curves."""
    compares: bool
    """Whether it has a page that compares runs."""


def main() -> None:
    """Runs every case and prints what it took beside its budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout, measured in turns with this one")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of each case; {ROUNDS} if left out")
    parser.add_argument("--whole", action="store_true", help="a log of 5 million lines among 100 000 runs, not fewer")
    options = parser.parse_args()
    with ExitStack() as stack:
        roots = {"now": ROOT} | ({"before": options.before.resolve()} if options.before else {})
        worlds = {name: stack.enter_context(_world(root)) for name, root in roots.items()}
        report = _measure(worlds, options.rounds)
    with _browser() as browser:
        report |= measure_large(browser, options.rounds, whole=options.whole)
    path = ROOT / "build" / "bench" / "ui.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    for name, budget in BUDGETS.items():
        before = report["before"].get(name)
        beside = f"; before {before:.1f}, ratio {report['ratio'][name]:.2f}" if before else ""
        print(f"{name:12} {report[name]:8.1f} of {budget}{beside}")
    print(f"load {report['load_before']} to {report['load_after']} on {os.cpu_count()} cores; {path}")


@contextmanager
def _world(root: Path) -> Iterator[World]:
    """The checkout's own `drumline up`, filled."""
    features = root / "frontend" / "src" / "features"
    with tempfile.TemporaryDirectory() as room:
        command = (str(root / ".venv" / "bin" / "drumline"),)
        deployment = Deployment.start(Path(room) / "data", command=command)
        try:
            deployment.wait_for_devices()
            run, batch = _fill(root, deployment, Path(room) / "curves.py")
            charts = "metrics" if (features / "run" / "metrics").is_dir() else "throughput"
            yield World(deployment, run, batch, charts, (features / "compare").is_dir())
        finally:
            deployment.stop()


def _fill(root: Path, deployment: Deployment, program: Path) -> tuple[str, str]:
    """Ids of a long run and of a sweep, which the checkout's own SDK submits."""
    program.write_text(PROGRAM)
    command = [str(root / ".venv" / "bin" / "python"), "-c", FILL, str(program), str(STEPS), str(NAMES), str(RUNS)]
    filled = subprocess.run(
        command,
        cwd=program.parent,
        env=deployment.environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=2400,
    )
    run, batch = filled.stdout.split()
    return run, batch


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
"""Whole ones first, as users have them."""


@contextmanager
def _browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


def _measure(worlds: dict[str, World], rounds: int) -> dict[str, Any]:
    """Medians of the cases, with those of before and the ratio to them where both were measured."""
    load = os.getloadavg()
    with _browser() as browser:
        found: dict[str, list[dict[str, float]]] = {name: [] for name in worlds}
        for _ in range(rounds):
            for case in (_visit, _metrics, _zoom, _compare):
                for name, world in worlds.items():
                    found[name].append(case(browser, world))
        entry = {name: {"entry_kb": _entry_kb(browser, world.deployment)} for name, world in worlds.items()}
    medians = {name: entry[name] | _medians(found[name]) for name in worlds}
    now, before = medians["now"], medians.get("before", {})
    return {
        **now,
        "before": before, "ratio": {name: now[name] / before[name] for name in now if before.get(name)},
        "rounds": found,
        "steps": STEPS, "names": NAMES, "runs": RUNS, "slower": SLOWER, "network": NETWORK,
        "load_before": load, "load_after": os.getloadavg(), "cores": os.cpu_count(),
    }  # fmt: skip


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for one in rounds for name in one)
    return {name: statistics.median(one[name] for one in rounds if name in one) for name in names}


def _metrics(browser: Browser, world: World) -> dict[str, float]:
    return _open(browser, world, f"/runs/{world.run}/{world.charts}", 4, "metrics")


def _compare(browser: Browser, world: World) -> dict[str, float]:
    return _open(browser, world, f"/compare?batch={world.batch}", 2, "compare") if world.compares else {}


def _entry_kb(browser: Browser, deployment: Deployment) -> float:
    context = signed_in(browser, deployment)
    page = context.new_page()
    page.goto(deployment.url, wait_until="load")
    # Chunks of other pages are fetched when the pointer comes near a link, and are not the entry's.
    total = page.evaluate(
        """() => performance.getEntriesByType("resource").filter(one => one.name.endsWith(".js"))
        .reduce((sum, one) => sum + one.encodedBodySize, 0)"""
    )
    context.close()
    return float(total) / 1000


def _visit(browser: Browser, world: World) -> dict[str, float]:
    """Overview for the first time, then the palette."""
    deployment = world.deployment
    context = signed_in(browser, deployment)
    page, computed = held_back(context)
    page.add_init_script(f"({WATCH})()")
    page.goto(deployment.url, wait_until="commit")
    page.wait_for_function(IS_QUIET, timeout=WAIT_MS, polling=50)
    seen = page.evaluate("() => window.seen")
    overview = computed()
    page.evaluate("() => addEventListener('keydown', () => { window.pressed ??= performance.now() }, true)")
    page.keyboard.press("ControlOrMeta+k")
    opened = float(page.wait_for_function(TAKES_TEXT, timeout=WAIT_MS).json_value())
    palette = computed() - overview
    context.close()
    return {
        "row_ms": seen["row"], "lcp_ms": seen["lcp"], "tbt_ms": seen["tbt"], "overview_cpu_ms": overview,
        "palette_ms": opened, "palette_cpu_ms": palette,
    }  # fmt: skip


def _open(browser: Browser, world: World, path: str, least: int, name: str) -> dict[str, float]:
    """Until all charts in the window have ink, with scripts in the cache."""
    context = signed_in(browser, world.deployment)
    warm = context.new_page()
    warm.goto(f"{world.deployment.url}{path}")
    warm.wait_for_function(DRAWN, arg=least, timeout=WAIT_MS)
    warm.close()
    page, computed = held_back(context)
    page.goto(f"{world.deployment.url}{path}", wait_until="commit")
    took = float(page.wait_for_function(DRAWN, arg=least, timeout=WAIT_MS, polling=50).json_value())
    cpu = computed()
    context.close()
    return {f"{name}_ms": took, f"{name}_cpu_ms": cpu}


def _zoom(browser: Browser, world: World) -> dict[str, float]:
    """The 95th of 100 frame times while a range is drawn and its charts are drawn again."""
    context = signed_in(browser, world.deployment)
    page, computed = held_back(context)
    page.goto(f"{world.deployment.url}/runs/{world.run}/{world.charts}")
    page.wait_for_function(DRAWN, arg=4, timeout=WAIT_MS)
    box = page.locator(".u-over").first.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 40, middle)
    page.evaluate(FRAMES)
    before = computed()
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, middle, steps=30)
    page.mouse.up()
    page.wait_for_function("end => performance.now() > end", arg=page.evaluate("() => performance.now() + 1000"))
    frames = sorted(page.evaluate("() => { cancelAnimationFrame(window.frame); return window.frameTimes }"))
    cpu = computed() - before
    context.close()
    return {"zoom_p95_ms": float(frames[int(len(frames) * 0.95)]), "zoom_cpu_ms": cpu}


if __name__ == "__main__":
    main()
