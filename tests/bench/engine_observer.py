"""What it costs to watch a run: the same steps with the worker's own observer and without, in turns."""

from __future__ import annotations

import operator
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import jax

import drumline.distribute as dist
from bench.engine_contenders import drumline
from bench.engine_report import Ratio
from bench.mlp import Task
from drumline.distribute.observe import (
    CollectiveRecord,
    Observer,
    PlacementRecord,
    ReductionRecord,
    StepRecord,
    VariableRecord,
)
from drumline.distribute.observe.non_finite import WatchedCall
from drumline_worker.runner.channel import Channel, Ticker
from drumline_worker.runner.observer import RunObserver
from drumline_worker.runner.runner_telemetry import Telemetry

TASK = Task("mlp784", "fixed", 8)
#: One full period of the default sampling: ten sampled steps, one of them with the large arrays.
BLOCK_STEPS = 100
MIN_PAIRS = 20
TOO_MANY_STEPS = 10**9


class Clocks(NamedTuple):
    """Seconds that a block took."""

    wall: float
    processor: float


Titles = Mapping[str, tuple[str, str, str]]
"""What is measured, beside what, and that again for the A/A, by the name of their ratio."""
WHOLE: Titles = {"drumline observed / drumline": ("observed", "plain", "again")}
LOOKING: Titles = {"drumline that looks for NaN / drumline that does not": ("looks", "told", "told again")}


def measure(rounds: int, *, least: int = MIN_PAIRS, titles: Titles | None = None) -> list[Ratio]:
    """Medians over rounds of blocks, in turns: observed against unobserved, and the look for NaN alone.

    What telemetry has left to send after the last step of a block is counted as well. The look costs what an observer
    that wants it takes longer than one that does not, of which neither keeps anything. A ratio by processor time says
    less of what else the machine does.
    """
    strategy = dist.MirroredStrategy(jax.devices()[: TASK.replicas])
    titles = titles or {**WHOLE, **LOOKING}
    wanted = {name for names in titles.values() for name in names}
    made = _contenders(strategy, drumline(TASK, strategy))
    contenders = {name: block for name, block in made.items() if name in wanted}
    for block in contenders.values():
        block()  # compiles what it needs
    taken: dict[str, list[Clocks]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(max(rounds, least)):
        at = number % len(names)
        for name in names[at:] + names[:at]:
            taken[name].append(contenders[name]())
    return [ratio(taken, title, names, clock) for title, names in titles.items() for clock in ("wall", "processor")]


def _contenders(strategy: dist.MirroredStrategy, run: Callable[[int], object]) -> dict[str, Callable[[], Clocks]]:
    def plain() -> Clocks:
        return clocked(lambda: run(BLOCK_STEPS))

    def told(observer: Observer) -> Clocks:
        strategy.observe(observer, reductions_every=TOO_MANY_STEPS)
        seconds = plain()
        strategy.observe(None)
        return seconds

    def observed() -> Clocks:
        with _channel() as channel:
            telemetry = Telemetry(channel)
            ids = {device.id: str(device.id) for device in strategy.devices}
            ticker = Ticker(channel, "own_code")
            ticker.start()
            strategy.observe(RunObserver(channel, telemetry, ticker, ids, step_began=lambda: None))

            def watched() -> None:
                run(BLOCK_STEPS)
                telemetry.close()

            seconds = clocked(watched)
            strategy.observe(None)
        return seconds

    return {
        "plain": plain,
        "again": plain,
        "observed": observed,
        "looks": lambda: told(_Looking()),
        "told": lambda: told(Told()),
        "told again": lambda: told(Told()),
    }


def ratio(
    taken: Mapping[str, Sequence[Clocks]], title: str, names: Sequence[str], clock: str, at_most: float | None = 1.01
) -> Ratio:
    """The median of the rounds' ratios. ``names``: what is measured, beside what, and that again for the A/A."""
    ours, theirs, again = ([getattr(one, clock) for one in taken[name]] for name in names)
    value, noise = (statistics.median(map(operator.truediv, some, theirs)) for some in (ours, again))
    return Ratio(title if clock == "wall" else f"{title}, {clock} time", value, noise, at_most=at_most)


def clocked(act: Callable[[], object]) -> Clocks:
    """What ``act`` takes."""
    wall, processor = time.perf_counter(), time.process_time()
    act()
    return Clocks(time.perf_counter() - wall, time.process_time() - processor)


class Told:
    """An observer that keeps nothing."""

    def placement(self, record: PlacementRecord) -> None:
        """Nothing."""

    def variable_created(self, record: VariableRecord) -> None:
        """Nothing."""

    def step_began(self, step: int) -> None:
        """Nothing."""

    def step_ended(self, record: StepRecord) -> None:
        """Nothing."""

    def collective(self, record: CollectiveRecord) -> None:
        """Nothing."""

    def reduction(self, record: ReductionRecord) -> None:
        """Nothing."""


class _Looking(Told):
    """One that wants to know of NaN and infinities."""

    def watched(self, one: WatchedCall) -> None:
        """Nothing."""


@contextmanager
def _channel() -> Iterator[Channel]:
    """A channel whose other end another process reads, as a worker's shim does."""
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen(["cat"], stdin=theirs.fileno(), stdout=subprocess.DEVNULL):
        theirs.close()
        yield Channel(ours)
        ours.close()
