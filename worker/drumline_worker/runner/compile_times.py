"""What JAX says that it compiled, wherever in the program: its time counts as compiling."""

import threading
import time
from collections import deque

import jax

from drumline.contracts.spent import Spent
from drumline_worker.host.phase_times import PhaseTimes

_COMPILING = "/jax/core/compile/"
"""Traced, lowered or compiled; each is told at its end, with its duration."""
_KEPT = 64


def watch_compilation(times: PhaseTimes) -> None:
    """Counts as compiling what JAX tells on the main thread from now on."""
    main, told = threading.main_thread().ident, Told()

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event.startswith(_COMPILING) and threading.get_ident() == main and times.current is not Spent.COMPILE:
            times.reassign(Spent.COMPILE, told.new_s(time.monotonic(), duration_secs))

    jax.monitoring.register_event_duration_secs_listener(listen)


class Told:
    """Counts each moment once, though an event may have others within it, which were told before."""

    def __init__(self) -> None:
        self._spans: deque[tuple[float, float]] = deque(maxlen=_KEPT)

    def new_s(self, ended_at: float, duration_s: float) -> float:
        """Of an event's seconds those that no event before was told to have."""
        began_at = ended_at - duration_s
        inner_s = 0.0
        while self._spans and self._spans[-1][1] > began_at:
            began, ended = self._spans.pop()
            inner_s += ended - max(began, began_at)
            began_at = min(began, began_at)
        self._spans.append((began_at, ended_at))
        return max(0.0, duration_s - inner_s)
