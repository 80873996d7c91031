"""How much slower this machine is now than one whose processors are all its own, by the same work beside a test."""

import json
import time
from collections.abc import Callable

_WORK = json.dumps([{"id": f"run_{number}", "values": [number / 7] * 8} for number in range(500)])
_WORK_S = 0.0018
"""Processor time of a look at `_WORK` on a machine that has its processors to itself."""
_LOOKS = 100
"""So that what shares the processors has its turns meanwhile."""


def processor_factor() -> float:
    """Of processor time: what shares a processor with others takes more of it for the same. At least 1."""
    return max(1.0, min(_look(time.thread_time) for _ in range(5)) / _WORK_S)


def wall_factor() -> float:
    """Of time on the wall, with the turns that others have. At least 1."""
    return max(1.0, sum(_look(time.monotonic) for _ in range(_LOOKS)) / (_LOOKS * _WORK_S))


def _look(clock: Callable[[], float]) -> float:
    began = clock()
    assert sum(len(row["id"]) + int(sum(row["values"])) for row in json.loads(_WORK)) > 0
    return clock() - began
