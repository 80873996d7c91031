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
from drumline_worker.runner.reports import ReductionReports
from drumline_worker.runner.runner_telemetry import Telemetry

TASK = Task("mlp784", "fixed", 8)
#: Ten sampled steps.
BLOCK_STEPS = 100
_WITH_LARGE = "observed with large"
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

    What telemetry has left to send after the last step of a block is counted as well. Large arrays are recorded in so
    few calls that hardly a block has one: observed blocks are measured without and with one such call, and counted in
    the proportion of the interval that the engine chooses on this machine. The look costs what an observer
    that wants it takes longer than one that does not, of which neither keeps anything. A ratio by processor time says
    less of what else the machine does.
    """
    titles = titles or {**WHOLE, **LOOKING}
    wanted = {name for names in titles.values() for name in names}
    with_large = BLOCK_STEPS / _chosen_interval() if "observed" in wanted else 0.0
    strategy = dist.MirroredStrategy(jax.devices()[: TASK.replicas])
    made = _contenders(strategy, drumline(TASK, strategy))
    wanted |= {_WITH_LARGE} if "observed" in wanted else set()
    contenders = {name: block for name, block in made.items() if name in wanted}
    for block in contenders.values():
        block()  # compiles what it needs
    taken: dict[str, list[Clocks]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(max(rounds, least)):
        at = number % len(names)
        for name in names[at:] + names[:at]:
            taken[name].append(contenders[name]())
    if _WITH_LARGE in taken:
        pairs = zip(taken["observed"], taken[_WITH_LARGE], strict=True)
        taken["observed"] = [_mixed(usual, large, with_large) for usual, large in pairs]
    return [ratio(taken, title, names, clock) for title, names in titles.items() for clock in ("wall", "processor")]


def _mixed(usual: Clocks, large: Clocks, share: float) -> Clocks:
    return Clocks(*(some + share * (more - some) for some, more in zip(usual, large, strict=True)))


def _chosen_interval() -> int:
    """Every how many calls large arrays are recorded by default, as the engine finds in the first calls of a run."""
    strategy = dist.MirroredStrategy(jax.devices()[: TASK.replicas])
    with _observed(strategy, None):
        drumline(TASK, strategy)(BLOCK_STEPS)
        return strategy._observation.large.told.every


def _contenders(strategy: dist.MirroredStrategy, run: Callable[[int], object]) -> dict[str, Callable[[], Clocks]]:
    def plain() -> Clocks:
        return clocked(lambda: run(BLOCK_STEPS))

    def told(observer: Observer) -> Clocks:
        strategy.observe(observer, reductions_every=TOO_MANY_STEPS)
        seconds = plain()
        strategy.observe(None)
        return seconds

    def observed(large_every: int) -> Clocks:
        with _observed(strategy, large_every) as telemetry:

            def watched() -> None:
                run(BLOCK_STEPS)
                telemetry.close()

            return clocked(watched)

    return {
        "plain": plain,
        "again": plain,
        "observed": lambda: observed(TOO_MANY_STEPS),
        _WITH_LARGE: lambda: observed(BLOCK_STEPS),
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
def _observed(strategy: dist.MirroredStrategy, large_every: int | None) -> Iterator[Telemetry]:
    """As a run's worker does, which takes all that a server of today knows."""
    with _channel() as channel:
        telemetry = Telemetry(channel, reports=ReductionReports(channel, takes_strips=True, takes_whole=True))
        ids = {device.id: str(device.id) for device in strategy.devices}
        ticker = Ticker(channel, "own_code")
        ticker.start()
        observer = RunObserver(channel, telemetry, ticker, ids, step_began=lambda: None)
        strategy.observe(observer, large_reductions_every=large_every)
        yield telemetry
        telemetry.close()
        strategy.observe(None)


@contextmanager
def _channel() -> Iterator[Channel]:
    """A channel whose other end another process reads, as a worker's shim does."""
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen(["cat"], stdin=theirs.fileno(), stdout=subprocess.DEVNULL):
        theirs.close()
        yield Channel(ours)
        ours.close()
