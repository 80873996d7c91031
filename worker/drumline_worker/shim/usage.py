"""What a member's processes use of their host, by /proc; its devices' memory, as the program's process tells it."""

import os
import time
from collections.abc import Callable, Sequence

from drumline.contracts.usage import DeviceMemory, Usage
from drumline_worker.host.system import cpu_seconds, descendants, resident_bytes

EVERY_S = 5.0
_REST = 500
"""So many times what a look takes pass until the next: it reads an entry of each process of the host, 30 us each."""
_GB = 1e9


class UsageMeter:
    """Reads what all processes below this one use, which is the shim. Times are of one steady clock, in seconds."""

    def __init__(self, devices: Callable[[], Sequence[DeviceMemory]] = tuple) -> None:
        self._devices = devices
        self._before: tuple[float, float] | None = None
        """When it was read, and the processor time until then."""
        self._rest_s = EVERY_S

    def read(self, now: float) -> Usage | None:
        """None where that was less than 5 s ago, and the first time, as there is nothing to compare with."""
        if self._before is not None and now - self._before[0] < self._rest_s:
            return None
        began_s = time.process_time()
        below = descendants(os.getpid())
        used_s, memory = cpu_seconds(below) + _reaped_s(), resident_bytes(below)
        self._rest_s = max(EVERY_S, _REST * (time.process_time() - began_s))
        before, self._before = self._before, (now, used_s)
        if before is None or now <= before[0]:
            return None
        return Usage(
            processor_percent=max(0.0, 100 * (used_s - before[1]) / (now - before[0])),
            memory_bytes=memory,
            processes=len(below),
            devices=tuple(self._devices()),
        )


def figures_of(usage: Usage) -> dict[str, float]:
    """What is drawn of it, by the name of its metric. Of several devices the fullest one's memory."""
    figures = {"sys/processor_percent": usage.processor_percent, "sys/memory_gb": usage.memory_bytes / _GB}
    if usage.devices:
        figures["sys/device_memory_gb"] = max(device.used_bytes for device in usage.devices) / _GB
    return figures


def _reaped_s() -> float:
    """Processor time of orphans that this process has reaped: it is in no entry any more."""
    times = os.times()
    return times.children_user + times.children_system
