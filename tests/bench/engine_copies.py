"""What it costs to compare copies: the same steps with the worker's own check every so many calls, and without."""

from __future__ import annotations

from collections.abc import Iterator

import jax

import drumline.distribute as dist
from bench import engine_contenders, engine_state
from bench.engine_contenders import Contender
from bench.engine_observer import Clocks, Told, clocked, ratio
from bench.engine_report import Ratio
from bench.mlp import Task
from drumline.contracts.worker_api import Rendezvous
from drumline.distribute.observe import StepRecord
from drumline.distribute.observe.divergence import CopyChecksums
from drumline_worker.runner.gang_checks import DivergenceCheck

REPLICAS = 8
BLOCK_STEPS = 100
EVERY = (10, 100)


class Comparing(Told):
    """An observer that keeps nothing and has copies compared, as a run does with `record.divergence_every`."""

    def __init__(self, check: DivergenceCheck) -> None:
        self.wants_arguments = check.wants_arguments
        self._check = check

    def arguments_taken(self, steps: range, sums: CopyChecksums) -> None:
        """Has them compared."""
        self._check.arguments_taken(steps, sums)

    def step_ended(self, record: StepRecord) -> None:
        """Has variables compared."""
        self._check.step_ended(record.step)


def measured(rounds: int) -> Iterator[tuple[Task, list[Ratio]]]:
    """Medians over rounds of blocks, in turns, of steps that compare against steps that do not, and the A/A.

    In variables are 670 000 numbers of six, in state handed through 430 000 of 209. What is to be compared still
    after the last step of a block is counted as well.
    """
    for task in (Task("mlp784", "fixed", REPLICAS), Task("tiny", f"{engine_state.LEAVES} arrays, donated", REPLICAS)):
        strategy = dist.MirroredStrategy(jax.devices()[:REPLICAS])
        if task.size == "mlp784":
            run = engine_contenders.drumline(task, strategy)
        else:
            run = engine_state.drumline(REPLICAS, donates=True, strategy=strategy)
        yield task, _measure(strategy, run, rounds)


def _measure(strategy: dist.MirroredStrategy, run: Contender, rounds: int) -> list[Ratio]:
    ids = {device.id: str(device.id) for device in strategy.devices}
    alone = Rendezvous(rank=0, size=1, hosts=("here",))
    checks = {every: DivergenceCheck(strategy, alone, every, ids, stops=True) for every in EVERY}

    def told(every: int | None) -> Clocks:
        check = None if every is None else checks[every]
        strategy.observe(Told() if check is None else Comparing(check), reductions_every=10**9)

        def block() -> None:
            run(BLOCK_STEPS)
            if check is not None:
                check.finish()

        seconds = clocked(block)
        strategy.observe(None)
        return seconds

    whose = {"plain": None, "again": None, **{f"every {every}": every for every in EVERY}}
    for every in whose.values():
        told(every)  # compiles what it needs
    taken: dict[str, list[Clocks]] = {name: [] for name in whose}
    names = list(whose)
    for number in range(rounds):
        at = number % len(names)
        for name in names[at:] + names[:at]:
            taken[name].append(told(whose[name]))
    return [
        ratio(taken, f"copies compared every {every} calls / never", [f"every {every}", "plain", "again"], clock, None)
        for every in EVERY
        for clock in ("wall", "processor")
    ]
