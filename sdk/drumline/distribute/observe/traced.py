"""What the engine does for an observer that traces calls of ``strategy.run``."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable


@runtime_checkable
class TraceObserver(Protocol):
    """What an observer implements as well to trace calls of ``strategy.run`` with their devices' work, and only that.

    Before and after such a call the engine waits for the devices that it uses.
    """

    def wants_trace(self, steps: range) -> bool:
        """These steps are sent next, in one call; whether it is to be traced."""

    def trace(self, steps: range) -> AbstractContextManager[None]:
        """Is around the call, and the wait for what it computes."""
