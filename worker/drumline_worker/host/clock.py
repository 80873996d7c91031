"""Time on a worker: the boot clock decides deadlines, the wall clock is for display.

What runs in a context where `host_clock` is set sees that clock: a simulator runs many hosts in one process.
"""

import time
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol


class HostClock(Protocol):
    """The clocks of one host."""

    def boottime(self) -> float:
        """Seconds since boot on CLOCK_BOOTTIME, which counts suspend and never jumps, for all processes."""

    def now(self) -> datetime:
        """The wall clock in UTC."""

    def boot_id(self) -> str:
        """What the kernel calls this boot."""


class SystemHostClock:
    """The clocks of this machine."""

    def boottime(self) -> float:
        """CLOCK_BOOTTIME."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> datetime:
        """The wall clock in UTC."""
        return datetime.now(UTC)

    def boot_id(self) -> str:
        """The kernel's random id of this boot."""
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


host_clock: ContextVar[HostClock] = ContextVar("host_clock")
_SYSTEM = SystemHostClock()


def boottime() -> float:
    """Seconds since boot on CLOCK_BOOTTIME, which counts suspend and never jumps, for all processes."""
    return host_clock.get(_SYSTEM).boottime()


def now() -> datetime:
    """The wall clock in UTC."""
    return host_clock.get(_SYSTEM).now()


def boot_id() -> str:
    """What the kernel calls this boot."""
    return host_clock.get(_SYSTEM).boot_id()
