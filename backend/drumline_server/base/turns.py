"""Turns at something that only a few may do at a time: a caller has one at a time, so that others are not kept waiting
by it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from drumline.contracts.problems import ProblemCode
from drumline_server.base.errors import DrumlineError


def busy(detail: str) -> DrumlineError:
    """The refusal of something that would be done a few seconds later."""
    return DrumlineError(
        ProblemCode.RATE_LIMITED, detail, hint="Try again in a few seconds.", context={"retry_after_s": 5}
    )


@dataclass(slots=True)
class _Queue:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Turns:
    """`slots` callers at a time; of one caller, `most_waiting` have a turn or wait for one. `what` names them."""

    def __init__(self, slots: int, most_waiting: int, what: str) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._most_waiting = most_waiting
        self._what = what
        self._queues: dict[str, _Queue] = {}

    @property
    def waiting(self) -> dict[str, int]:
        """How many of each caller have a turn or wait for one."""
        return {caller: queue.waiting for caller, queue in tuple(self._queues.items())}

    def require_room(self, caller: str) -> None:
        """Raises DrumlineError (rate_limited) where too many of this caller wait."""
        queue = self._queues.get(caller)
        if queue is not None and queue.waiting >= self._most_waiting:
            raise busy(f"{self._most_waiting} {self._what}.")

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Waits for a turn and holds it. Raises DrumlineError like `require_room`."""
        self.require_room(caller)
        queue = self._queues.setdefault(caller, _Queue())
        queue.waiting += 1
        try:
            async with queue.lock, self._slots:
                yield
        finally:
            queue.waiting -= 1
            if not queue.waiting:
                del self._queues[caller]
