"""`make bench`: how long a user waits. Medians over repetitions, as JSON in build/bench/main_job.json.

- `up_api_ready_s`, `up_worker_ready_s`: from `drumline up` to the first answer of the API and to 8 free devices;
- `cold_*`: from submit to the first step and to the end of a one-step job on 8 devices whose version never ran;
- `warm_*`: the same for a version that has run.
"""

import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drumline import Client
from support.deployment import ROOT, Deployment

REPLICAS = 8
STARTS, COLD, WARM = 5, 5, 20
AIMS_S = {
    "up_api_ready_s": 1.0,
    "up_worker_ready_s": 5.0,
    "cold_first_step_s": 2.0,
    "cold_terminal_s": 2.0,
    "warm_first_step_s": 0.5,
    "warm_terminal_s": 0.5,
}
ONE_STEP = ROOT / "examples" / "one_step.py"


def main() -> None:
    """Measures, prints a table and writes the JSON."""
    load_before = os.getloadavg()[0]
    samples: dict[str, list[float]] = {name: [] for name in AIMS_S}
    with tempfile.TemporaryDirectory(prefix="drumline-bench-") as directory:
        for number in range(STARTS):
            with _deployment(Path(directory, f"start{number}"), samples):
                pass
        with _deployment(Path(directory, "runs"), {}) as deployment:
            _measure_runs(deployment, Path(directory), samples)
    _report(samples, load_before)


@contextmanager
def _deployment(data_dir: Path, samples: dict[str, list[float]]) -> Iterator[Deployment]:
    began = time.perf_counter()
    deployment = Deployment.start(data_dir)
    try:
        deployment.wait_for_api()
        samples.get("up_api_ready_s", []).append(time.perf_counter() - began)
        deployment.wait_for_devices(REPLICAS)
        samples.get("up_worker_ready_s", []).append(time.perf_counter() - began)
        yield deployment
    finally:
        deployment.stop()


def _measure_runs(deployment: Deployment, directory: Path, samples: dict[str, list[float]]) -> None:
    with Client(deployment.url, deployment.token) as client:
        for number in range(COLD):
            program = directory / f"cold_{number}.py"
            program.write_text(f"{ONE_STEP.read_text()}\n# version {number}\n")
            _measure_run(client, program, "cold", samples)
        for _ in range(WARM):
            _measure_run(client, program, "warm", samples)


def _measure_run(client: Client, program: Path, kind: str, samples: dict[str, list[float]]) -> None:
    began = time.perf_counter()
    run = client.submit(program, replicas=REPLICAS)
    first_step: float | None = None
    for event in run.events():
        if event.kind == "progress" and first_step is None:
            first_step = time.perf_counter() - began
    ended = time.perf_counter() - began
    assert run.refresh().state == "SUCCEEDED", run.reason
    assert first_step is not None, "a one-step job reports its step"
    samples[f"{kind}_first_step_s"].append(first_step)
    samples[f"{kind}_terminal_s"].append(ended)


def _report(samples: dict[str, list[float]], load_before: float) -> None:
    rows = {
        name: {
            "median_s": round(statistics.median(values), 4),
            "min_s": round(min(values), 4),
            "max_s": round(max(values), 4),
            "n": len(values),
            "aim_s": AIMS_S[name],
            "met": statistics.median(values) <= AIMS_S[name],
        }
        for name, values in samples.items()
    }
    machine = {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load_before": round(load_before, 2),
        "load_after": round(os.getloadavg()[0], 2),
    }
    target = ROOT / "build" / "bench" / "main_job.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")
    for name, row in rows.items():
        print(f"{name:20} {row['median_s']:8.3f} s   aim {row['aim_s']:.1f} s   {'met' if row['met'] else 'MISSED'}")
    print(f"load average before {machine['load_before']}, after {machine['load_after']}, on {machine['cpus']} CPUs")
    print(f"written to {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
