"""A clock that stands still until a test moves it."""

import time
from dataclasses import dataclass

START = 1_800_000_000_000_000
"""Some moment of 2027, in microseconds."""


@dataclass
class FakeClock:
    """Implements `drumline_server.base.settings.Clock`."""

    micros: int = START

    def now(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        return self.micros

    def advance(self, seconds: float) -> int:
        """Moves on and returns the new time."""
        self.micros += int(seconds * 1_000_000)
        return self.micros


@dataclass
class RunningClock(FakeClock):
    """The machine's clock, ahead by what a test turned it."""

    micros: int = 0

    def now(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000 + self.micros

    def advance(self, seconds: float) -> int:
        """Moves on and returns the new time."""
        super().advance(seconds)
        return self.now()
