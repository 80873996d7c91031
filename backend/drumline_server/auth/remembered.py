"""What was found of a token, kept for a second: a program that asks hundreds of times in it is looked up once.

From a revocation on that this process committed, every token is looked up anew. One that another process revoked, or
that expires, is refused a second later at the latest. What makes credentials from a credential looks again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from drumline_server.auth import tokens
from drumline_server.clock import Clock
from drumline_server.together import Together
from drumline_server.wakeups import CREDENTIALS, Wakeups

Found = TypeVar("Found")
KEPT_US = 1_000_000
_MOST = 4_096
"""Tokens that are kept, of some hundred bytes each; one more, and all are looked up anew."""


@dataclass(frozen=True, slots=True)
class _Kept(Generic[Found]):
    found: Found
    at: int
    """On the server's clock, by which tokens expire."""
    asked: float
    """On a clock that nobody sets back."""


class Remembered(Generic[Found]):
    """The holders of tokens in one event loop. `look_up` asks the database; what it refuses is not kept."""

    def __init__(
        self,
        look_up: Together[str, Found],
        wakeups: Wakeups,
        clock: Clock,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look_up = look_up
        self._clock = clock
        self._monotonic = monotonic
        self._kept: dict[str, _Kept[Found]] = {}
        self._changes = 0
        wakeups.subscribe_in_loop(self._hear)

    async def ask(self, secret: str) -> Found:
        """Who holds the token `secret`. Raises as `look_up` does."""
        name, now, asked = tokens.digest(secret), self._clock.now(), self._monotonic()
        kept = self._kept.pop(name, None)
        if kept is not None and 0 <= now - kept.at < KEPT_US and asked - kept.asked < KEPT_US / 1e6:
            self._kept[name] = kept
            return kept.found
        changes = self._changes
        found = await self._look_up.ask(secret)
        if changes == self._changes:  # else it may have been read before the change
            if len(self._kept) >= _MOST:
                self._kept.clear()
            self._kept[name] = _Kept(found, now, asked)
        return found

    def forget(self, secret: str) -> None:
        """The next request with this token looks it up."""
        self._kept.pop(tokens.digest(secret), None)

    def _hear(self, topics: frozenset[str]) -> None:
        if CREDENTIALS in topics:
            self._changes += 1
            self._kept.clear()
