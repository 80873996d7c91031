"""Points of metrics as the server stores them, on each database: how fast, in how many bytes, how soon read.

`make bench-telemetry-storage`; JSON in build/bench/telemetry_storage.json. Times are those of the server's own calls,
without HTTP. Names times points: 1 of a million, 10 of 100 000, 10 000 of 100, and with `--long` 1 of 10 million.
"""

import argparse
import itertools
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import text

from drumline_server.storage.database import Database
from drumline_server.telemetry import export
from drumline_server.telemetry.metrics import Window, read_metrics
from support.clock import RunningClock
from support.core import Core, Member
from support.databases import new_database

_ROOT = Path(__file__).resolve().parents[2]
SHAPES = ((1, 1_000_000), (10, 100_000), (10_000, 100))
LONG = (1, 10_000_000)
BATCH = 10_000
BUCKETS = 1_200
CHARTS = 7
TABLES = ("metric", "metric_chunk", "metric_page")


def measure(core: Core, names: int, points: int) -> dict[str, Any]:
    """One shape, logged by a new run."""
    worker = core.add_worker()
    core.submit(resources={"replicas": 1})
    core.schedule()
    member = worker.take().start()
    before, dice = _size_bytes(core), random.Random(1)
    named = [f"metric/{name:05}" for name in range(names)]
    seconds = []
    for first in range(0, names * points, BATCH):
        places = range(first, min(first + BATCH, names * points))
        steps = [place // names for place in places]
        values = [math.exp(-step / 1e5) + dice.gauss(0, 0.05) for step in steps]
        times = [core.clock.now() + place for place in range(len(places))]
        event = member.event(
            "metrics", names=[named[at % names] for at in places], steps=steps, times=times, values=values
        )
        began = time.perf_counter()
        member.send(event)
        seconds.append(time.perf_counter() - began)
    total = names * points
    return {
        "names": names, "points": points, "points_per_s": round(total / sum(seconds)),
        "batch_ms": _percentiles(seconds), "bytes_a_point": round((_size_bytes(core) - before) / total, 2),
        **_read(core, member, named[0], points), "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def _read(core: Core, member: Member, name: str, points: int) -> dict[str, Any]:
    """A chart of the whole curve and of a hundredth of it; every point of all names."""

    def chart(start: int | None, end: int | None) -> None:
        window = Window((name,), "step", start, end, BUCKETS)
        (series,) = core.read(
            partial(read_metrics, project_id=core.project_id, run_id=member.claimed.run, window=window)
        ).series
        assert series.n == points

    middle = points // 2
    whole = [_seconds(partial(chart, None, None)) for _ in range(CHARTS)]
    zoomed = [_seconds(partial(chart, middle, middle + points // 100)) for _ in range(CHARTS)]
    out = _seconds(lambda: sum(len(block.steps) for block in _blocks(core, member)))
    return {"chart_ms": _percentiles(whole), "zoom_ms": _percentiles(zoomed), "read_out_s": round(out, 2)}


def _blocks(core: Core, member: Member) -> Iterator[export.Block]:
    find = partial(export.find_sources, project_id=core.project_id, run_id=member.claimed.run, names=(), attempt=None)
    for stretches in export.cut(core.read(find)):
        yield from core.read(partial(export.read_blocks, stretches=stretches))


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    at = {"median": statistics.median(ordered), "p99": ordered[int(0.99 * len(ordered))], "worst": ordered[-1]}
    return {name: round(1e3 * value, 1) for name, value in at.items()}


def _size_bytes(core: Core) -> int:
    if core.database.url.startswith("sqlite"):
        sizes = text("SELECT (SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size)")
    else:
        total = " + ".join(f"pg_total_relation_size('{table}')" for table in TABLES)
        sizes = text(f"SELECT {total}")
    return int(core.read(lambda session: session.scalar(sizes)) or 0)


def _bench(kind: str, shape: tuple[int, int]) -> dict[str, Any]:
    """One shape on a database of its own."""
    with new_database(kind) as url:
        database = Database(url, timeout_s=120)
        try:
            return {"database": kind, **measure(Core(database, RunningClock()), *shape)}
        finally:
            database.close()


def main() -> None:
    """Both databases, into build/bench/telemetry_storage.json."""
    parser = argparse.ArgumentParser(description="Time points of metrics in the server's storage.")
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    parser.add_argument("--long", action="store_true", help="also a metric of 10 million points")
    asked = parser.parse_args()
    kinds = (asked.only,) if asked.only else ("sqlite", "postgresql")
    target = _ROOT / "build" / "bench" / "telemetry_storage.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    for kind, shape in itertools.product(kinds, [*SHAPES, *([LONG] if asked.long else [])]):
        row = _bench(kind, shape)
        print(json.dumps(row), flush=True)
        rows.append(row)
        target.write_text(json.dumps({"cpus": os.cpu_count(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
