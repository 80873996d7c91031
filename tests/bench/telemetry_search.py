"""Search through a long output: until all of it was looked at, and what others wait meanwhile.

A program prints 5 million lines as trainings do. Each search finds one line far down and looks at everything: a text, a
text that is not there, an expression, a level. In turns with a time in which nothing is asked but `/healthz`.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drumline import Client
from drumline.resources.runs import Run
from support.deployment import Deployment

LINES = 5_000_000
ROUNDS = 3
TICK_S, QUIET_S, WAIT_S = 0.02, 2.0, 1800.0
AIMS_S = {"text": 2.0, "absent": 2.0, "as_written": 2.0, "expression": 15.0, "level": 15.0}
HEALTH_AIM_MS = 250.0
PROGRAM = '''
"""Prints the lines of a training, of which one says something else."""


def main(run, *, lines: int):
    for number in range(lines):
        if number == lines * 2 // 3:
            print("ERROR loss is not finite any more: Ärger in layer 7")
        else:
            print(f"INFO step {number:07d} loss {1 / (1 + number):.6e} lr 3.0e-04 {number % 977} tokens/s")
'''
SEARCHES: dict[str, dict[str, Any]] = {  # Any: arguments of `search_logs`
    "text": {"find": "ärger IN layer"},
    "absent": {"find": "no line says this"},
    "as_written": {"find": "Ärger in layer", "ignore_case": False},
    "expression": {"find": r"loss .*(finite|infinite) any.*layer \d+$", "regex": True},
    "level": {"level": "error"},
}


def measure(deployment: Deployment, lines: int = LINES) -> dict[str, Any]:
    """Medians of seconds, how many lines each found, and `/healthz` in ms, beside the searches and between them."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="drumline-bench-") as directory:
        program = Path(directory, "prints.py")
        program.write_text(PROGRAM)
        with Client(deployment.url, deployment.token) as client:
            run = client.submit(program, replicas=1, parameters={"lines": lines}).wait(timeout=WAIT_S)
            assert run.state == "SUCCEEDED", run.reason
            took: dict[str, list[float]] = {name: [] for name in SEARCHES}
            found: dict[str, int] = {}
            with _health(deployment) as health:
                for _ in range(ROUNDS):
                    for name, arguments in SEARCHES.items():
                        with health.during("idle"):
                            time.sleep(QUIET_S)  # in which nothing else happens
                        with health.during(name):
                            began = time.perf_counter()
                            found[name] = _search(run, arguments)
                            took[name].append(time.perf_counter() - began)
    seconds = {name: round(statistics.median(each), 2) for name, each in took.items()}
    asked = {name: {"p99": _share(each, 0.99), "worst": _share(each, 1.0)} for name, each in health.answers.items()}
    met = {name: seconds[name] <= aim and asked[name]["worst"] <= HEALTH_AIM_MS for name, aim in AIMS_S.items()}
    expected = dict.fromkeys(SEARCHES, 1) | {"absent": 0}
    assert found == expected, found
    return {"lines": lines, "seconds": seconds, "aims_s": AIMS_S, "healthz_ms": asked, "met": met, "load": load}


def _search(run: Run, arguments: dict[str, Any]) -> int:
    return len(list(run.search_logs(**arguments)))


class _Health:
    """Asks `/healthz` again and again; each answer belongs to what is being done."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._doing: str | None = None
        self.over = threading.Event()
        self.answers: dict[str, list[float]] = {}

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """What begins within it is of that name."""
        self._doing = name
        yield
        self._doing = None

    def ask(self) -> None:
        """Until it is over."""
        with self._deployment.http() as http:
            while not self.over.wait(TICK_S):
                doing, began = self._doing, time.perf_counter()
                http.get(f"{self._deployment.url}/healthz").raise_for_status()
                if doing is not None:
                    self.answers.setdefault(doing, []).append(1e3 * (time.perf_counter() - began))


@contextmanager
def _health(deployment: Deployment) -> Iterator[_Health]:
    health = _Health(deployment)
    thread = threading.Thread(target=health.ask)
    thread.start()
    try:
        yield health
    finally:
        health.over.set()
        thread.join()


def _share(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)
