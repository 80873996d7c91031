"""`make house`: what a newcomer has to walk through, in figures; JSON in build/house.json.

Five traces and one step, recorded in every process and in the browser (`traces.py`), the shape of the code (`shape.py`)
and whether docs/lifecycle.md tells what happens (`lifecycle.py`). Names no module of the product: it starts what users
start.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.house import browser, environment, figures, lifecycle, recordings, shape, traces
from scripts.house.deployment import TraceError
from scripts.house.report import report

ROOT = Path(__file__).resolve().parents[2]
BASELINE = Path(__file__).with_name("baseline.json")
"""Figures of before the code was put in order (at its `commit`), of which the aims are fractions; never made again."""


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout to measure")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "house.json", help="where the JSON goes")
    parser.add_argument("--uv", default=shutil.which("uv") or "uv", help="path of uv")
    parser.add_argument("--shape-only", action="store_true", help="record no trace")
    options = parser.parse_args()
    root = options.root.resolve()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what was started is stopped
    try:
        python, traced = ("", {}) if options.shape_only else _trace(root, options.uv)
    except (environment.NoPythonError, TraceError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    house = {"commit": _commit(root), "python": python, "traces": traced, "shape": shape.measure(root)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(house, indent=1) + "\n")
    print(report(house, json.loads(BASELINE.read_text()) if BASELINE.exists() else None))
    print(f"\nEvery function in the order of first entry: {options.out}")
    page = root / lifecycle.PAGE
    wrong = lifecycle.compare(page.read_text(), traced) if traced and page.exists() else []
    for each in wrong:
        print(f"{lifecycle.PAGE}: {each}", file=sys.stderr)
    return 1 if wrong else 0


def _trace(root: Path, uv: str) -> tuple[str, dict[str, Any]]:
    """The Python's version and the figures by trace."""
    python = environment.prepare(root, uv)
    built = _build_with_maps(root)
    session = traces.Session(python, root / "build" / "house" / "recordings")
    session.prepare(root)
    try:
        with browser.dashboard() as dashboard, tempfile.TemporaryDirectory(prefix="house-") as folder:
            tracer = traces.trace(session, Path(folder), dashboard, built)
    finally:
        session.close()
    version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    return version, _figures(tracer, root, built)


def _figures(tracer: traces.Tracer, root: Path, built: Path) -> dict[str, Any]:
    read = recordings.read(tracer.session.folder, root)
    named: dict[str, list[recordings.Recording]] = {}
    for number, name in tracer.session.recordings.items():
        named.setdefault(name, []).append(read.get(number, recordings.Recording()))
    idle = named.pop(traces.IDLE)
    of = figures.Figures(shape.Code(root)).of
    found = {}
    for name, several in named.items():
        if not all(recording.paths for recording in several):
            raise TraceError(f"{name}: a recording of it is empty")
        found[name] = of(recordings.without(several, idle))
        found[name]["shared"] = sorted(f"{each.file}:{each.name}" for each in recordings.shared(several, idle))
        found[name]["processes"] = max(each.processes for each in several)
        if name == traces.REDUCTION:
            found[f"{name}, in the browser"] = figures.of_browser(tracer.shown, tracer.shown_idle, built, root)
    return found


def _build_with_maps(root: Path) -> Path:
    """The dashboard with source maps, to be served."""
    built = root / "build" / "house" / "dashboard"
    options = ["--sourcemap", "hidden", "--outDir", str(built), "--emptyOutDir", "--logLevel", "warn"]
    subprocess.run([sys.executable, root / "scripts" / "npm.py", "exec", "--", "vite", "build", *options], check=True)
    return built


def _commit(root: Path) -> str:
    done = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
