"""Many histories on all cores: seeds for zero violations, mutants until each is caught."""

import gc
import json
import multiprocessing
import multiprocessing.pool
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sim.history import Outcome, live
from sim.mutants import MUTANTS, Mutant
from sim.plan import History, plan
from sim.store import MemoryStore
from support.scratch import scratch_root

KNOWN = Path(__file__).parent / "caught_by.json"
"""A seed that caught each mutant once: tried first, so that most are caught at once."""
_COLLECT_EVERY = 20
_CHUNK = 4


@dataclass(slots=True)
class Sweep:
    """What came of many seeds."""

    seeds: int = 0
    commits: int = 0
    executions: int = 0
    virtual_s: float = 0.0
    broken: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """One more history."""
        self.seeds += 1
        self.commits += outcome.commits
        self.executions += outcome.executions
        self.virtual_s += outcome.virtual_s
        if outcome.violation is not None:
            self.broken.append(outcome)


@dataclass(frozen=True, slots=True)
class Caught:
    """The first seed whose invariants noticed that a safeguard was off; None if none did."""

    mutant: str
    safeguard: str
    seed: int | None
    violation: str


class Stage:
    """Where one process lives through histories: a database, a disk in memory, and no garbage collector in between."""

    def __init__(self, disks: Path) -> None:
        self._store = MemoryStore()
        self._disks = disks
        self._lived = 0
        gc.collect()
        gc.freeze()

    def live(self, history: History) -> Outcome:
        """One history."""
        gc.disable()
        try:
            return live(history, self._store, self._disks)
        finally:
            self._lived += 1
            if self._lived % _COLLECT_EVERY == 0:
                gc.collect()
            gc.enable()

    def close(self) -> None:
        """Other tests of this process have garbage of their own."""
        gc.unfreeze()

    def catch(self, mutant: Mutant, seeds: Iterable[int]) -> Caught:
        """The first of `seeds` that notices."""
        for seed in seeds:
            with mutant.applied():
                outcome = self.live(plan(seed))
            if outcome.violation is not None:
                return Caught(mutant.name, mutant.safeguard, seed, outcome.violation)
        return Caught(mutant.name, mutant.safeguard, None, "")


def sweep(seeds: Sequence[int], jobs: int, progress: Callable[[Sweep, Outcome], None]) -> Sweep:
    """Lives through all of them; `progress` hears of each, and what came of all so far."""
    swept = Sweep()
    with _pool(jobs) as pool:
        for outcome in pool.imap_unordered(_live, seeds, chunksize=_CHUNK):
            swept.add(outcome)
            progress(swept, outcome)
    return swept


def catch_mutants(seeds: int, jobs: int) -> list[Caught]:
    """Tries each mutant on the seed that is known to catch it, then on seeds from 0 on."""
    with _pool(jobs) as pool:
        return pool.map(partial(_catch, seeds=seeds), [mutant.name for mutant in MUTANTS], chunksize=1)


def known_seeds() -> dict[str, int]:
    """By mutant."""
    found: dict[str, int] = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    return found


def remember(caught: Iterable[Caught]) -> None:
    """Keeps the seeds that caught mutants for the next time."""
    found = known_seeds() | {each.mutant: each.seed for each in caught if each.seed is not None}
    KNOWN.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")


_stage: list[Stage] = []
"""This process's own."""


@contextmanager
def disks_in_memory() -> Iterator[Path]:
    """A folder for the disks of simulated hosts, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="drumline-sim-", dir=scratch_root()) as folder:
        yield Path(folder)


@contextmanager
def _pool(jobs: int) -> Iterator[multiprocessing.pool.Pool]:
    with disks_in_memory() as disks, multiprocessing.get_context("spawn").Pool(jobs, _enter, (disks,)) as pool:
        yield pool


def _enter(disks: Path) -> None:
    _stage.append(Stage(disks / str(os.getpid())))


def _live(seed: int) -> Outcome:
    return _stage[0].live(plan(seed))


def _catch(name: str, seeds: int) -> Caught:
    mutant = next(each for each in MUTANTS if each.name == name)
    known = known_seeds().get(name)
    first = [] if known is None else [known]
    return _stage[0].catch(mutant, [*first, *range(seeds - len(first))])
