"""`make bench-telemetry`: what a program logs arrives whole. JSON in build/bench/telemetry.json.

A real `drumline up` with its worker. Each case runs a program, waits until its last record is stored, reads everything
back through the API and compares it bit for bit and in order:

- `burst`: 200 000 values as fast as `run.log` takes them, at most 2.5 s;
- `lines`: 200 000 lines of output as fast as `print` writes them;
- `rate_20000`, `rate_80000`: so many values a second for some seconds.

`logged_s` is how long the program took to log, `arrived_s` from its first value until all of them were stored,
`behind_s` from its last value on.
"""

import json
import os
import platform
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drumline import Client
from drumline.resources.runs import Run
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
    """Measures, prints a table and writes the JSON; fails if anything is missing."""
    load_before = os.getloadavg()[0]
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="drumline-bench-") as directory:
        deployment = Deployment.start(Path(directory, "up"))
        try:
            deployment.wait_for_devices()
            program = Path(directory, "telemetry.py")
            program.write_text(PROGRAM)
            with Client(deployment.url, deployment.token) as client:
                for case in CASES:
                    rows[case.name] = _measure(client, deployment, program, case)
        finally:
            deployment.stop()
    _report(rows, load_before)


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


def _report(rows: dict[str, dict[str, Any]], load_before: float) -> None:
    machine = {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load_before": round(load_before, 2),
        "load_after": round(os.getloadavg()[0], 2),
    }
    target = ROOT / "build" / "bench" / "telemetry.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")
    for name, row in rows.items():
        verdict = "whole" if row["whole"] else "NOT WHOLE"
        times = f"logged in {row['logged_s']:.2f} s, all stored {row['behind_s']:.2f} s later"
        print(f"{name:12} {row['values'] + row['lines']:8} {times:50} {verdict}")
    print(f"load average before {machine['load_before']}, after {machine['load_after']}, on {machine['cpus']} CPUs")
    print(f"written to {target.relative_to(ROOT)}")
    if not all(row["whole"] for row in rows.values()):
        raise SystemExit("something that was logged did not arrive")


if __name__ == "__main__":
    main()
