"""One history: laid out, lived through, judged."""

import contextlib
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from drumline.contracts import base
from drumline.contracts.states import TERMINAL_RUN
from drumline_server.base.errors import DatabaseUnavailableError
from drumline_worker.agent import maintenance
from sim.plan import FAULTS_END_S, History
from sim.store import MemoryStore
from sim.strikes import lay_out
from sim.world import Numbers, World

BOUND_S = 900.0
"""So long after the last fault every run has ended: lease, drain, backoffs and what is left to compute."""
SETTLE_S = 240.0
"""So long after the last run's end every device is free: programs that nobody wants are killed by then."""
_CHUNK_S = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a seed. `log` is filled where something broke."""

    seed: int
    violation: str | None
    commits: int
    executions: int
    virtual_s: float
    log: tuple[tuple[float, str, str], ...] = ()

    def told(self, lines: int = 150) -> str:
        """The history's last lines, for people."""
        shown = [f"{at:9.3f}  {who:<14} {what}" for at, who, what in self.log[-lines:]]
        return "\n".join([f"seed {self.seed}: {self.violation}", *shown])


def live(history: History, store: MemoryStore, disks: Path, *, keep_log: bool = False) -> Outcome:
    """Lives through a history, up to its first violation."""
    random.seed(history.seed)
    with patch.object(base, "_uuid7", Numbers(history.seed).next):
        world = World(history.seed, store, disks)
        try:
            with (
                _errors_are_violations(world),
                patch.object(maintenance, "processes_below", world.processes_below),
                patch.object(maintenance, "kill_quietly", world.kill_quietly),
            ):
                lay_out(world, history)
                _live(world)
        finally:
            world.close()
    log = tuple(world.timeline.log) if keep_log or world.first_violation else ()
    return Outcome(history.seed, world.first_violation, world.commits, world.truth.executions, world.timeline.now, log)


def _live(world: World) -> None:
    """In small steps, so that a violation ends it soon."""

    def is_over() -> bool:
        return world.first_violation is not None

    world.timeline.run(FAULTS_END_S + 1.0, is_over)
    deadline = FAULTS_END_S + BOUND_S
    while world.first_violation is None and not _all_ended(world):
        if world.timeline.now >= deadline:
            world.violation(f"{_unfinished(world)} had not ended {BOUND_S:g} s after the last fault")
            return
        world.timeline.run(world.timeline.now + _CHUNK_S, is_over)
    deadline = world.timeline.now + SETTLE_S
    while world.first_violation is None and not _all_settled(world):
        if world.timeline.now >= deadline:
            world.violation(f"{SETTLE_S:g} s after the last run: {_unsettled(world)}")
            return
        world.timeline.run(world.timeline.now + _CHUNK_S, is_over)


def _all_ended(world: World) -> bool:
    return len(world.user.acknowledged) == world.user.keys_used and not _unfinished(world)


def _unfinished(world: World) -> list[str]:
    return [
        f"{run} {state}" for run, state in world.store.rows("SELECT id, state FROM run") if state not in TERMINAL_RUN
    ]


def _all_settled(world: World) -> bool:
    return not _unsettled(world)


def _unsettled(world: World) -> list[str]:
    """Programs that run for nobody, devices that nobody gets."""
    devices = world.store.rows("SELECT id, state, host_id FROM device WHERE state != 'FREE'")
    serving = {host.host_id for host in world.hosts if not (host.gone or host.retired)}
    devices = [(device, state) for device, state, host in devices if host in serving]
    return [*sorted(world.truth.running), *(f"{name} {state}" for name, state in devices)]


@contextlib.contextmanager
def _errors_are_violations(world: World) -> Iterator[None]:
    """What our code logs as an error is one, unless the history's own faults explain it."""
    handler = _Listener(world)
    loggers = [logging.getLogger(name) for name in ("drumline_server", "drumline_worker", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
            logger.propagate = True


class _Listener(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, DatabaseUnavailableError):
            self._world.violation(f"{record.name}: {record.getMessage()}: {error!r}")
