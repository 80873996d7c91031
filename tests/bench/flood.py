"""`make bench-flood`: a run that prints without end costs the server little memory, and other runs little time.

A real `drumline up`. One run prints a line each 50 ms with the time of day, and a client follows it; it asks for
`/healthz` as often. First alone, then beside a run that prints `--mebibytes` in short lines, `--mebibytes-per-s` of
them a second, and at last one line of `--line` MiB. Aims: the server's memory grows by less than 200 MiB, and the p99
of the other run's lag, and of `/healthz`, at most doubles. All that was printed is counted. JSON in
build/bench/flood.json.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.engine_report import machine
from bench.served import MEBIBYTE, Memory, server_of, up_on
from drumline import Client
from drumline.resources.runs import Run
from support.databases import DATABASES
from support.deployment import ROOT, Deployment

GROWN_MIB, TIMES = 200, 2.0
TICK_S = 0.05
QUIET_S = 20.0
WAIT_S = 1800.0
TICKING = f'''
"""Prints the time of day until there is a file."""

import os
import time


def main(run, *, until: str):
    while not os.path.exists(until):
        print(repr(time.time()), flush=True)
        time.sleep({TICK_S})
'''
FLOODING = '''
"""Prints lines of 1 KiB at a rate, then one long line."""

import sys
import time


def main(run, *, mebibytes: int, per_s: float, line: int):
    began, block = time.time(), ("x" * 1023 + "\\n") * 1024
    for number in range(mebibytes):
        time.sleep(max(0.0, began + number / per_s - time.time()))
        sys.stdout.write(block)
    for _ in range(line):
        sys.stdout.write("y" * 2**20)
    sys.stdout.write("\\n")
    return {"began": began, "printed": time.time()}
'''


class Watch:
    """Follows a ticking run, and asks for `/healthz`; how late each line came and each answer, with when."""

    def __init__(self, deployment: Deployment, run_id: str) -> None:
        self._deployment = deployment
        self._run_id = run_id
        self._over = threading.Event()
        self.lags: list[tuple[float, float]] = []
        self.answers: list[tuple[float, float]] = []
        self._pool = ThreadPoolExecutor(2)
        self._done = [self._pool.submit(each) for each in (self._follow, self._ask)]

    def stop(self) -> None:
        """Once the run has ended. Raises what ended one of them before."""
        self._over.set()
        for done in self._done:
            done.result()
        self._pool.shutdown()

    def _follow(self) -> None:
        with Client(self._deployment.url, self._deployment.token) as client:
            for segment in client.get(self._run_id).logs(follow=True):
                now = time.time()
                if segment.stream == "stdout":
                    self.lags += [(float(line), now - float(line)) for line in segment.text.splitlines()]

    def _ask(self) -> None:
        with self._deployment.http() as http:
            while not self._over.wait(TICK_S):
                began = time.time()
                http.get(f"{self._deployment.url}/healthz").raise_for_status()
                self.answers.append((began, time.time() - began))


def main() -> None:
    """Measures on each database, prints a line for each, and writes the JSON."""
    parser = argparse.ArgumentParser(description="Flood a server with output.")
    parser.add_argument("--databases", nargs="*", choices=DATABASES, default=[*DATABASES])
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--mebibytes-per-s", type=float, default=1024 / 60)
    parser.add_argument("--line", type=int, default=100, help="MiB of the one long line")
    options = parser.parse_args()
    target = ROOT / "build" / "bench" / "flood.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    for database in options.databases:
        row = measure(database, options)
        print(json.dumps(row, indent=2), flush=True)
        rows.append(row)
        target.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")
    print(f"written to {target.relative_to(ROOT)}")


def measure(database: str, options: argparse.Namespace) -> dict[str, Any]:
    """A quiet time, then the flood."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as directory, up_on(database) as (deployment, _):
        ticking, flooding, over = (Path(directory, name) for name in ("ticking.py", "flooding.py", "over"))
        ticking.write_text(TICKING)
        flooding.write_text(FLOODING)
        with Client(deployment.url, deployment.token) as client:
            ticks = client.submit(ticking, replicas=1, parameters={"until": str(over)})
            watch = Watch(deployment, ticks.id)
            _wait_for_lines(watch, 20)
            quiet_from = time.time()
            time.sleep(QUIET_S)  # nothing else happens in it
            with Memory(server_of(deployment)) as memory:
                flood_from = time.time()
                parameters = {
                    "mebibytes": options.mebibytes, "per_s": options.mebibytes_per_s, "line": options.line
                }  # fmt: skip
                flood = client.submit(flooding, replicas=1, parameters=parameters).wait(timeout=WAIT_S)
                stored_at = time.time()
            over.touch()
            ticks.wait(timeout=WAIT_S)
            watch.stop()
            arrived, result = _bytes_of(flood), flood.result
    printed = (options.mebibytes + options.line) * MEBIBYTE + 1
    assert isinstance(result, dict)
    quiet, flooded = (quiet_from, flood_from), (flood_from, stored_at)
    lag, answer = ([_p99_ms(each, span) for span in (quiet, flooded)] for each in (watch.lags, watch.answers))
    row = {
        "database": database, "printed_mib": printed // MEBIBYTE, "whole": arrived == printed,
        "printed_s": round(float(str(result["printed"])) - float(str(result["began"])), 1),
        "stored_s": round(stored_at - float(str(result["began"])), 1),
        "server_mib": round(memory.before / MEBIBYTE), "grown_mib": round(memory.grown / MEBIBYTE),
        "lag_p99_ms": lag, "healthz_p99_ms": answer, "load": [round(load, 1), round(os.getloadavg()[0], 1)],
    }  # fmt: skip
    met = memory.grown < GROWN_MIB * MEBIBYTE and all(most <= TIMES * quiet for quiet, most in (lag, answer))
    return {**row, "met": met and arrived == printed}


def _wait_for_lines(watch: Watch, count: int) -> None:
    until = time.monotonic() + WAIT_S
    while len(watch.lags) < count:
        assert time.monotonic() < until, "the run prints nothing"
        time.sleep(TICK_S)


def _bytes_of(run: Run) -> int:
    return sum(len(segment.text) for segment in run.logs() if segment.stream == "stdout")


def _p99_ms(seen: Sequence[tuple[float, float]], span: tuple[float, float]) -> float:
    within = sorted(seconds for at, seconds in seen if span[0] <= at < span[1])
    return round(1e3 * within[int(0.99 * len(within))], 1)


if __name__ == "__main__":
    main()
