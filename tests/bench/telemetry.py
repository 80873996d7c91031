"""`make bench-telemetry`: what a program logs arrives whole, how soon, and beside MLflow's server.

JSON in build/bench/telemetry.json. A real `drumline up` with its worker. `whole`: each case runs a program, waits until
its last record is stored, reads everything back through the API and compares it bit for bit and in order:

- `burst`: 200 000 values as fast as `run.log` takes them, at most 2.5 s;
- `lines`: 200 000 lines of output as fast as `print` writes them;
- `rate_20000`, `rate_80000`: so many values a second for some seconds.

`logged_s` is how long the program took to log, `arrived_s` from its first value until all of them were stored,
`behind_s` from its last value on.

`calls`: what `run.log` costs a loop. `shapes`: names times points, `--factor` of them, from 1 and 8 runs, on both
databases, with a reader (`telemetry_shapes`), in turns with MLflow's server, which stands still meanwhile and gets at
most 20 000 points. `clients`: 500 live clients of a run that logs, 50 of them stalled (`telemetry_clients`). `search`:
through 5 million lines of output, and `/healthz` beside it (`telemetry_search`). `step`: all of telemetry beside a step
of the 784 MLP.
"""

import argparse
import itertools
import json
import os
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import telemetry_calls, telemetry_clients, telemetry_search, telemetry_shapes
from bench.engine_report import machine
from bench.served import up_on
from bench.telemetry_peer import mlflow_on
from drumline import Client
from drumline.resources.runs import Run
from support.databases import DATABASES
from support.deployment import ROOT, Deployment

BURST = 200_000
BURST_S = 2.5
SECONDS = 5
RATES = (20_000, 80_000)
MOST_BUCKETS = 2_000
WAIT_S = 600.0
PROGRAM = '''
"""Logs values or prints lines, as many and as fast as it is told."""

import time


def main(run, *, values: int = 0, lines: int = 0, per_s: int = 0):
    run.log(step=0, begun=1.0)
    began = time.time()
    for step in range(values):
        if per_s and step % 1000 == 0:
            time.sleep(max(0.0, began + step / per_s - time.time()))
        run.log(step=step, value=step / 3)
    for line in range(lines):
        print(f"line {line} of {lines}: {line / 3!r}")
    return {"began": began, "logged": time.time()}
'''


@dataclass(frozen=True)
class Case:
    """One run of the program."""

    name: str
    values: int = 0
    lines: int = 0
    per_s: int = 0


CASES = (
    Case("burst", values=BURST),
    Case("lines", lines=BURST),
    *(Case(f"rate_{rate}", values=rate * SECONDS, per_s=rate) for rate in RATES),
)


def main() -> None:
    """Measures the parts asked for, prints each row as it comes and writes the JSON; fails if anything is missing."""
    parts: dict[str, Callable[[Report, argparse.Namespace], None]] = {
        "whole": _whole,
        "calls": _calls,
        "shapes": _shapes,
        "clients": _clients,
        "search": _search,
        "step": _step,
    }
    parser = argparse.ArgumentParser(description="Measure telemetry from the program to the client.")
    parser.add_argument("--parts", nargs="*", choices=[*parts], default=[*parts])
    parser.add_argument("--factor", type=float, default=0.25, help="share of the points of each shape")
    parser.add_argument("--databases", nargs="*", choices=DATABASES, default=[*DATABASES])
    parser.add_argument("--rounds", type=int, default=telemetry_calls.STEP_ROUNDS, help="of steps of the 784 MLP")
    options = parser.parse_args()
    report = Report()
    for name in options.parts:
        parts[name](report, options)
    report.end()


def _whole(report: "Report", options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="drumline-bench-") as directory, up_on("sqlite") as (deployment, _):
        program = Path(directory, "telemetry.py")
        program.write_text(PROGRAM)
        with Client(deployment.url, deployment.token) as client:
            for case in CASES:
                report.add(f"whole/{case.name}", _measure(client, deployment, program, case))


def _calls(report: "Report", options: argparse.Namespace) -> None:
    with up_on("sqlite") as (deployment, _):
        report.add("calls", telemetry_calls.measure(deployment))


def _shapes(report: "Report", options: argparse.Namespace) -> None:
    for database in options.databases:
        with up_on(database) as (deployment, url), mlflow_on(database) as peer:
            for (names, points), runs in itertools.product(telemetry_shapes.SHAPES, telemetry_shapes.RUNS):
                shape = telemetry_shapes.Shape.scaled(names, points, runs, options.factor)
                title = f"{database}/{names}x{points}/{runs}"
                report.add(f"{title}/drumline", telemetry_shapes.measure(deployment, url, shape))
                if peer is not None:
                    report.add(f"{title}/mlflow {peer.version}", peer.measure(shape))


def _clients(report: "Report", options: argparse.Namespace) -> None:
    for database in options.databases:
        with up_on(database) as (deployment, _):
            report.add(f"{database}/clients", telemetry_clients.measure(deployment))


def _search(report: "Report", options: argparse.Namespace) -> None:
    for database in options.databases:
        with up_on(database) as (deployment, _):
            report.add(f"{database}/search", telemetry_search.measure(deployment))


def _step(report: "Report", options: argparse.Namespace) -> None:
    for ratio in telemetry_calls.measure_step(options.rounds):
        report.add(ratio.name, ratio.as_json())


def _measure(client: Client, deployment: Deployment, program: Path, case: Case) -> dict[str, Any]:
    parameters = {"values": case.values, "lines": case.lines, "per_s": case.per_s}
    run = client.submit(program, replicas=1, parameters=parameters)
    run.wait(timeout=WAIT_S)
    stored_at = time.time()
    assert run.refresh().state == "SUCCEEDED", run.reason
    result = run.details.result
    assert isinstance(result, dict)
    began, logged = float(str(result["began"])), float(str(result["logged"]))
    whole = _has_every_value(run, case.values) and _has_every_line(run, case.lines)
    gaps = deployment.get(f"/runs/{run.id}/gaps")["items"]
    return {
        "values": case.values,
        "lines": case.lines,
        "logged_s": round(logged - began, 3),
        "arrived_s": round(stored_at - began, 3),
        "behind_s": round(stored_at - logged, 3),
        "whole": whole and not gaps,
        "gaps": len(gaps),
    }


def _has_every_value(run: Run, values: int) -> bool:
    """Read in windows of so many steps that each bucket holds one value: compared bit for bit, in order."""
    for first in range(0, values, MOST_BUCKETS):
        last = min(first + MOST_BUCKETS, values) - 1
        (series,) = run.metrics("value", start=first, end=last, buckets=MOST_BUCKETS).series
        if series.n != values or set(series.points.count) != {1}:
            return False
        expected = [step / 3 for step in range(first, last + 1)]
        if list(series.points.x) != list(range(first, last + 1)) or _bits(series.points.last) != _bits(expected):
            return False
    return True


def _bits(numbers: Any) -> bytes:  # Any: a column of floats
    return struct.pack(f"<{len(numbers)}d", *numbers)


def _has_every_line(run: Run, lines: int) -> bool:
    output = "".join(segment.text for segment in run.logs() if segment.stream == "stdout")
    return output == "".join(f"line {line} of {lines}: {line / 3!r}\n" for line in range(lines))


class Report:
    """Rows as they come; the file holds all so far."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Any]] = {}
        self._load_before = round(os.getloadavg()[0], 2)
        self._path = ROOT / "build" / "bench" / "telemetry.json"
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, name: str, row: dict[str, Any]) -> None:
        """Prints and keeps it."""
        self._rows[name] = {**row, "load": round(os.getloadavg()[0], 1)}
        print(f"{name:36} {json.dumps(self._rows[name])}", flush=True)
        where = {**machine(), "load_before": self._load_before}
        self._path.write_text(json.dumps({"machine": where, "rows": self._rows}, indent=2) + "\n")

    def end(self) -> None:
        """Fails if anything did not arrive."""
        print(f"written to {self._path.relative_to(ROOT)}")
        if not all(row.get("whole", True) for row in self._rows.values()):
            raise SystemExit("something that was logged did not arrive")


if __name__ == "__main__":
    main()
