"""The last part of `make bench-engine`: one strategy over two processes of four simulated devices each.

- `processes, ready`: from the start of two processes of a plain script until both have reduced a value of 8 replicas;
- `run, first step` and `run, ended`: from the submission of a run over two hosts of a warm `drumline up`;
- a step of ours beside hand-written `jit(shard_map)` over the same mesh of both processes, as `engine.py` compares.

Results go to build/bench/gang.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.engine_report import Ratio, Results, machine
from bench.engine_rounds import HAND, HAND_AGAIN, OURS, ROOT, measure, paired
from bench.mlp import SIZES, Task
from drumline import Client
from drumline.contracts.spec import MirroredSpec
from drumline_worker.agent.agent_context import CoordinatorPort
from support.deployment import STOP_S, Deployment

PROCESSES, DEVICES = 2, 4
REPLICAS = PROCESSES * DEVICES
SLICE = "v4:2x2x2"
"""A simulated slice of two hosts with four devices each."""
SYSTEMS = (HAND, OURS, HAND_AGAIN)
READY_S = 3.0
STEP_RATIO = 1.05


def main() -> None:
    """Measures, prints and writes the JSON."""
    parser = argparse.ArgumentParser(description="Time a gang of two processes.")
    parser.add_argument("--rounds", type=int, default=21, help="blocks per system")
    parser.add_argument("--starts", type=int, default=9, help="starts of the processes, and runs")
    options = parser.parse_args()
    results = Results(machine())
    starts = [_start_s() for _ in range(options.starts + 1)]
    results.add_seconds(f"{PROCESSES} x {DEVICES} processes, ready", starts[1:], READY_S)  # the first is not warm
    for name, seconds in _runs_s(options.starts).items():
        results.add_seconds(f"{PROCESSES} x {DEVICES} {name}", seconds, READY_S if "first" in name else None)
    results.show_seconds()
    for size in SIZES:
        task = Task(size, "fixed", REPLICAS)
        with _gang(size) as gang:
            samples = measure({name: partial(gang.block, name) for name in SYSTEMS}, options.rounds)
        noise = paired(samples, HAND_AGAIN, HAND)
        results.add_times(task, samples)
        results.add_ratio(task, Ratio(f"{HAND_AGAIN} / {HAND}", noise, noise))
        results.add_ratio(task, Ratio(f"{OURS} / {HAND}", paired(samples, OURS, HAND), noise, at_most=STEP_RATIO))
        results.show(task)
    results.write(ROOT / "build" / "bench" / "gang.json")


class _Gang:
    """The processes. All take each question, and a block lasts as long as the slowest of them needs."""

    def __init__(self, size: str, place: str) -> None:
        cluster = {"worker": [place, *(f"127.0.0.1:{rank}" for rank in range(1, PROCESSES))]}
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(ROOT / "tests" / "bench" / "gang_member.py"), size, str(DEVICES)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT / "tests"),
                    "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}}),
                },
            )
            for rank in range(PROCESSES)
        ]

    def wait_until_ready(self) -> None:
        expected = {"replicas": REPLICAS, "sum": float(sum(range(REPLICAS)))}
        for answer in self._answers():
            assert answer == expected, answer

    def block(self, system: str, steps: int) -> tuple[float, float]:
        """Seconds of the slowest, and the loss, which all have."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps([system, steps]) + "\n")
        answers = self._answers()
        return max(answer["seconds"] for answer in answers), answers[0]["loss"]

    def _answers(self) -> list[Any]:
        return [self._answer(process) for process in self._processes]

    @staticmethod
    def _answer(process: subprocess.Popen[str]) -> Any:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("told "):
                return json.loads(line.removeprefix("told "))
        raise SystemExit(f"a process of the gang ended with status {process.wait()}")

    def stop(self) -> None:
        """They part and end."""
        try:
            for process in self._processes:
                assert process.stdin is not None
                process.stdin.close()
            for process in self._processes:
                process.wait(STOP_S)
        finally:
            for process in self._processes:
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()


@contextmanager
def _gang(size: str) -> Iterator[_Gang]:
    place = CoordinatorPort("127.0.0.1")
    gang = _Gang(size, place.coordinator)
    try:
        gang.wait_until_ready()
        yield gang
    finally:
        gang.stop()
        place.close()


def _start_s() -> float:
    began = time.perf_counter()
    with _gang(""):
        return time.perf_counter() - began


def _runs_s(count: int) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {"run, first step": [], "run, ended": []}
    with tempfile.TemporaryDirectory(prefix="drumline-bench-") as directory:
        deployment = Deployment.start(Path(directory, "gang"), "--simulate", SLICE)
        try:
            deployment.wait_for_devices(REPLICAS)
            with Client(deployment.url, deployment.token) as client:
                for number in range(count + 1):
                    first, ended = _run_s(client)
                    if number > 0:  # the first one compiles
                        samples["run, first step"].append(first)
                        samples["run, ended"].append(ended)
        finally:
            deployment.stop()
    return samples


def _run_s(client: Client) -> tuple[float, float]:
    began = time.perf_counter()
    run = client.submit(ROOT / "examples" / "one_step.py", replicas=REPLICAS, strategy=MirroredSpec(collectives="jax"))
    first: float | None = None
    for event in run.events():
        if event.kind == "progress" and first is None:
            first = time.perf_counter() - began
    ended = time.perf_counter() - began
    assert run.refresh().state == "SUCCEEDED", run.reason
    assert first is not None, "a one-step job reports its step"
    assert len(next(iter(run.attempts)).members) == PROCESSES
    return first, ended


if __name__ == "__main__":
    main()
