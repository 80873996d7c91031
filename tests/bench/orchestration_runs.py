"""How fast runs go through: one after the other, and many at once; ours, and no-op jobs of Ray in turns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.peer_process import PeerProcess
from drumline import Client
from drumline.resources.runs import Run
from support.deployment import ROOT, Deployment

ONE_STEP = ROOT / "examples" / "one_step.py"
DEVICES = 8
WARM_UP, ONES, TENS = 3, 5, 3
MANY = 100


@dataclass(slots=True)
class Timings:
    """Seconds from submit to the terminal state: of one run, of ten at once, and of a hundred at once."""

    one: list[float] = field(default_factory=list)
    ten: list[float] = field(default_factory=list)
    hundred: list[float] = field(default_factory=list)


def measure(with_ray: bool) -> tuple[Timings, Timings | None]:
    """Ours and Ray's. Both servers are up during the comparison; only one of them works at a time."""
    ours, theirs = Timings(), Timings()
    with _deployment() as client:
        for _ in range(WARM_UP):
            _seconds(client, 1)
        peer = PeerProcess.start("ray_peer.py") if with_ray else None
        try:
            if peer is not None:
                peer.answer()
                peer.ask(1)
            for count, repeats in ((1, ONES), (10, TENS)):
                for _ in range(repeats):
                    (ours.one if count == 1 else ours.ten).append(_seconds(client, count))
                    if peer is not None:
                        (theirs.one if count == 1 else theirs.ten).append(float(peer.ask(count)["seconds"]))
        finally:
            if peer is not None:
                peer.stop()
        ours.hundred.append(_seconds(client, MANY))
    return ours, theirs if with_ray else None


@contextmanager
def _deployment() -> Iterator[Client]:
    with TemporaryDirectory(prefix="drumline-bench-") as directory:
        deployment = Deployment.start(Path(directory, "runs"))
        try:
            deployment.wait_for_devices(DEVICES)
            with Client(deployment.url, deployment.token) as client:
                yield client
        finally:
            deployment.stop()


def _seconds(client: Client, count: int) -> float:
    """Submits runs of one device each, and waits until the last has succeeded."""
    began = time.perf_counter()
    runs: list[Run] = [client.submit(ONE_STEP, replicas=1) for _ in range(count)]
    for run in runs:
        run.wait()
    elapsed = time.perf_counter() - began
    for run in runs:
        if run.refresh().state != "SUCCEEDED":
            raise SystemExit(f"{run.id} ended as {run.state}: {run.reason}")
    return elapsed
