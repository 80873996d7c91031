"""How many steps may be on their way to the devices before the host waits."""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import lru_cache
from typing import Any

import jax

from drumline.distribute.base.trace_state import is_abstract

#: On CPU, queued collectives of many steps can starve the client's thread pool and abort the process after 40 s.
CPU_STEPS_IN_FLIGHT = 4


class InFlightWindow:
    """Waits for the oldest of ``limit`` programs before another is sent; ``limit`` None never waits.

    All strategies on host CPUs share one window, as they share the thread pool.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._pending: deque[Any] = deque()
        self._lock = threading.Lock()

    @classmethod
    def for_devices(cls, devices: tuple[jax.Device, ...]) -> InFlightWindow:
        """The window a strategy on these devices needs."""
        needs_limit = len(devices) > 1 and any(device.platform == "cpu" for device in devices)
        return _cpu_window() if needs_limit else cls(None)

    def admit(self, token: Any) -> int:
        """Notes a sent step by one of its outputs, one that nobody donates; for how many nanoseconds it waited."""
        if self.limit is None or is_abstract():
            return 0
        with self._lock:
            self._pending.append(token)
            oldest = self._pending.popleft() if len(self._pending) > self.limit else None
        if oldest is None or oldest.is_deleted():
            return 0
        began = time.monotonic_ns()
        oldest.block_until_ready()
        return time.monotonic_ns() - began


@lru_cache(maxsize=1)
def _cpu_window() -> InFlightWindow:
    return InFlightWindow(CPU_STEPS_IN_FLIGHT)
