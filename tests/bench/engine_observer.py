"""What it costs to watch a run: the same steps with the worker's own observer and without, in turns."""

from __future__ import annotations

import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import jax

import drumline.distribute as dist
from bench.engine_contenders import drumline
from bench.engine_report import Ratio
from bench.mlp import Task
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.observer import RunObserver
from drumline_worker.runner.runner_telemetry import Telemetry
from drumline_worker.runner.ticker import Ticker

TASK = Task("mlp784", "fixed", 8)
#: One full period of the default sampling: ten sampled steps, one of them with the large arrays.
BLOCK_STEPS = 100
MIN_PAIRS = 20


def measure(rounds: int) -> Ratio:
    """Observed against unobserved, as the median over pairs of blocks; every other pair the other way round.

    What telemetry has left to send after the last step of a block is counted as well.
    """
    strategy = dist.MirroredStrategy(jax.devices()[: TASK.replicas])
    run = drumline(TASK, strategy)

    def plain() -> float:
        began = time.perf_counter()
        run(BLOCK_STEPS)
        return time.perf_counter() - began

    def observed() -> float:
        with _channel() as channel:
            telemetry = Telemetry(channel)
            ids = {device.id: str(device.id) for device in strategy.devices}
            ticker = Ticker(channel, "own_code")
            ticker.start()
            strategy.observe(RunObserver(channel, telemetry, ticker, ids, step_began=lambda: None))
            began = time.perf_counter()
            run(BLOCK_STEPS)
            telemetry.close()
            seconds = time.perf_counter() - began
            strategy.observe(None)
        return seconds

    observed()  # compiles the variants that record
    watched, again = [], []
    for number in range(max(rounds, MIN_PAIRS)):
        one, other = (plain, observed) if number % 2 else (observed, plain)
        seconds = {one: one(), other: other()}
        watched.append(seconds[observed] / seconds[plain])
        again.append(plain() / seconds[plain])
    return Ratio("drumline observed / drumline", statistics.median(watched), statistics.median(again), at_most=1.01)


@contextmanager
def _channel() -> Iterator[Channel]:
    """A channel whose other end another process reads, as a worker's shim does."""
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen(["cat"], stdin=theirs.fileno(), stdout=subprocess.DEVNULL):
        theirs.close()
        yield Channel(ours)
        ours.close()
