"""The server's clock: every deadline is measured with it, and a simulator can hand in its own."""

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time. `now` in microseconds since 1970-01-01 UTC, as the database stores it."""

    def now(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000
