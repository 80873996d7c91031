"""Points that programs log at a rate, through runner, shim, agent and server, while a client reads them.

Names times points in each shape, from one run or from eight at once, in all as many points a second as the rate says.
The value of a point is the time at which it was logged, so that the reader knows how old what it sees is: at each news
of the run it reads what is new of one name, once a second a chart of all of it. Its lag is that of the oldest point
which it had not seen before.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.served import MEBIBYTE, Memory, server_of, size_of
from drumline import Client
from drumline.resources.runs import Run
from support.deployment import Deployment

SHAPES = ((1, 1_000_000), (10, 100_000), (10_000, 100))
RUNS = (1, 8)
RATE = 43_000
"""Points a second: a little more than the aim, as what starts and ends a run counts too."""
READ_POINTS = 20_000
CHART_EVERY_S, BUCKETS = 1.0, 600
WAIT_S = 1800.0
NAME = "m/0"
PROGRAM = '''
"""Logs so many points of so many names, at a rate."""

import time


def main(run, *, names: int, points: int, per_s: float):
    labels = [f"m/{number}" for number in range(names)]
    every = max(1, 1000 // names)
    began = time.time()
    for step in range(points):
        if step % every == 0:
            time.sleep(max(0.0, began + step * names / per_s - time.time()))
        run.log(step=step, **dict.fromkeys(labels, time.time()))
    return {"began": began, "logged": time.time()}
'''


@dataclass(frozen=True, slots=True)
class Shape:
    """So many names with so many points each, from each of so many runs."""

    names: int
    points: int
    runs: int

    @property
    def total(self) -> int:
        """All points."""
        return self.names * self.points * self.runs

    @classmethod
    def scaled(cls, names: int, points: int, runs: int, factor: float) -> Shape:
        """A share of the points, split among the runs."""
        return cls(names, max(1, round(points * factor / runs)), runs)


class Reader:
    """Follows one run as a page does, until its end."""

    def __init__(self, deployment: Deployment, run_id: str) -> None:
        self._deployment = deployment
        self._run_id = run_id
        self._seen = 0
        self._chart_at = 0.0
        self.lags_s: list[float] = []
        self._pool = ThreadPoolExecutor(1)
        self._done = self._pool.submit(self._follow)

    def finish(self) -> None:
        """Once the run has ended. Raises what ended it before."""
        self._done.result()
        self._pool.shutdown()

    def _follow(self) -> None:
        with Client(self._deployment.url, self._deployment.token) as client:
            run = client.get(self._run_id)
            for event in run.events():
                if event.kind == "metrics":
                    self._look(run)

    def _look(self, run: Run) -> None:
        for series in run.metrics(NAME, start=self._seen, buckets=1).series:
            oldest = [each for each in series.points.min if each is not None]
            if series.last_step >= self._seen and oldest:
                self.lags_s.append(time.time() - min(oldest))
                self._seen = series.last_step + 1
        if time.monotonic() >= self._chart_at + CHART_EVERY_S:
            run.metrics(NAME, buckets=BUCKETS)
            self._chart_at = time.monotonic()


def measure(deployment: Deployment, url: str, shape: Shape) -> dict[str, Any]:
    """One shape; every point is counted."""
    before = size_of(url, deployment.data_dir)
    with (
        tempfile.TemporaryDirectory() as directory,
        Client(deployment.url, deployment.token) as client,
        Memory(server_of(deployment)) as memory,
    ):
        program = Path(directory, "shapes.py")
        program.write_text(PROGRAM)
        parameters = {"names": shape.names, "points": shape.points, "per_s": RATE / shape.runs}
        runs = [client.submit(program, replicas=1, parameters=parameters) for _ in range(shape.runs)]
        reader = Reader(deployment, runs[0].id)
        for run in runs:
            run.wait(timeout=WAIT_S)
        stored_at = time.time()
        reader.finish()
        read_s = _read(runs[0], shape)
    results: list[Any] = [run.result for run in runs]
    began = min(float(each["began"]) for each in results)
    logged = max(float(each["logged"]) for each in results)
    lags = sorted(reader.lags_s)
    return {
        "names": shape.names, "points": shape.points, "runs": shape.runs, "total": shape.total,
        "logged_s": round(logged - began, 2), "stored_s": round(stored_at - began, 2),
        "points_per_s": round(shape.total / (stored_at - began)),
        "lag_p99_ms": round(1e3 * lags[int(0.99 * len(lags))]) if lags else None, "looks": len(lags),
        "read_points": shape.points, "read_s": round(read_s, 3),
        "bytes_a_point": round((size_of(url, deployment.data_dir) - before) / shape.total, 1),
        "server_mib": round(memory.before / MEBIBYTE), "grown_mib": round(memory.grown / MEBIBYTE),
    }  # fmt: skip


def _read(run: Run, shape: Shape) -> float:
    """Seconds until every point of one name is here."""
    began = time.perf_counter()
    table = run.to_arrow(NAME)
    seconds = time.perf_counter() - began
    assert run.refresh().state == "SUCCEEDED", run.reason
    assert table["step"].to_pylist() == list(range(shape.points)), f"{table.num_rows} points of {shape.points}"
    return seconds
