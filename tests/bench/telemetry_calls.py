"""What it costs a program to log: `run.log` of five scalars, and the loop around it with the call and without.

And what all of telemetry at its defaults costs a step of the 784 MLP, as `make bench-engine` measures it.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import drumline.distribute as dist
from bench import engine_observer
from bench.engine_report import Ratio
from drumline import Client
from support.deployment import Deployment

CALL_AIM_US = 20.0
STEP_ROUNDS = 20
"""In five the A/A strayed by 5 %, which tells nothing of an aim of 1 %."""
WAIT_S = 900.0
PROGRAM = '''
"""Times `run.log` of five scalars, and steps of about a millisecond with it and without, in turns."""

import time


def main(run, *, calls: int, steps: int, rounds: int):
    counted = iter(range(10**9))

    def log():
        step = next(counted)
        run.log(step=step, loss=1 / (step + 1), accuracy=step / 3, rate=0.1, norm=step * 0.5, scale=2.0)

    def took(act, count):
        wall, processor = time.perf_counter(), time.thread_time()
        for _ in range(count):
            act()
        return [(time.perf_counter() - wall) / count, (time.thread_time() - processor) / count]

    def plain():
        sum(range(30_000))

    def logged():
        sum(range(30_000))
        log()

    log()
    found = {"call": [], "plain": [], "logged": [], "again": []}
    for _ in range(rounds):
        found["call"].append(took(log, calls))
        time.sleep(0.5)  # what was logged is sent meanwhile
        for name, act in (("plain", plain), ("logged", logged), ("again", plain)):
            found[name].append(took(act, steps))
    return found
'''


def measure(deployment: Deployment, *, calls: int = 2000, steps: int = 1000, rounds: int = 7) -> dict[str, Any]:
    """Medians over rounds."""
    with tempfile.TemporaryDirectory() as directory, Client(deployment.url, deployment.token) as client:
        program = Path(directory, "calls.py")
        program.write_text(PROGRAM)
        run = client.submit(program, replicas=1, parameters={"calls": calls, "steps": steps, "rounds": rounds})
        found: Any = run.wait(timeout=WAIT_S).result
    assert isinstance(found, dict), run.reason

    def microseconds(name: str, clock: int) -> float:
        return round(1e6 * statistics.median(float(each[clock]) for each in found[name]), 1)

    def ratio(name: str, clock: int) -> float:
        pairs = zip(found[name], found["plain"], strict=True)
        return round(statistics.median(float(one[clock] / plain[clock]) for one, plain in pairs), 4)

    return {
        "log_of_5_us": microseconds("call", 0), "log_of_5_processor_us": microseconds("call", 1),
        "aim_us": CALL_AIM_US, "met": microseconds("call", 0) <= CALL_AIM_US,
        "step_us": microseconds("plain", 0), "step_with_log_us": microseconds("logged", 0),
        "loop_with_log": ratio("logged", 0), "loop_a_a": ratio("again", 0),
        "loop_with_log_processor": ratio("logged", 1), "loop_a_a_processor": ratio("again", 1),
    }  # fmt: skip


def measure_step(rounds: int = STEP_ROUNDS) -> list[Ratio]:
    """All of telemetry beside none, wall and processor time, in this process."""
    dist.set_cpu_devices(engine_observer.TASK.replicas)
    return engine_observer.measure(rounds, least=1, titles=engine_observer.WHOLE)
