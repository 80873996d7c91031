"""How long this process stood still lately, which is no fault of those who tried to reach it.

A heartbeat needs several turns of the event loop. Where something holds the loop for two seconds at a time, again and
again, no heartbeat gets through, yet every loop of the server still goes round. So the time that the event loop comes
late is added up, and leases run out that much later.
"""

import asyncio
import time
from collections import deque

from drumline_server.clock import Clock

_MICROS = 1_000_000
_LOOK_EVERY_S = 0.05
_LEAST_US = 100_000
"""What a busy machine does to a sleeping task all the time is no stall."""
_MOST_NOTES = 10_000
"""Bounds what is remembered; at 0.1 s each, more than any T of an hour at a third of its time."""


class Stalls:
    """When the event loop came late, and by how much."""

    def __init__(self) -> None:
        self._notes: deque[tuple[int, int]] = deque(maxlen=_MOST_NOTES)

    def note(self, ended_at: int, length_us: int) -> None:
        """A stall that ended at `ended_at`; both in microseconds."""
        self._notes.append((ended_at, length_us))

    def since(self, time_us: int) -> int:
        """Microseconds of all stalls that ended after `time_us`."""
        while self._notes and self._notes[0][0] <= time_us:
            self._notes.popleft()
        return sum(length for _, length in tuple(self._notes))  # another thread may note one meanwhile


async def watch_stalls(stalls: Stalls, clock: Clock) -> None:
    """Notes each stall of the running event loop, until it is cancelled."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(_LOOK_EVERY_S)
        late_us = int((time.monotonic() - began - _LOOK_EVERY_S) * _MICROS)
        if late_us >= _LEAST_US:
            stalls.note(clock.now(), late_us)
