"""What was found of a token, kept for a second: a program that asks hundreds of times in it is looked up once.

A token that this process revokes, replaces or notes the use of is looked up anew by the next request. One that another
process revoked, or that expires, is refused a second later at the latest.
"""

from typing import Generic, TypeVar

from drumline_server.auth import tokens
from drumline_server.clock import Clock
from drumline_server.together import Together
from drumline_server.wakeups import CREDENTIALS, Wakeups

Found = TypeVar("Found")
KEPT_US = 1_000_000
_MOST = 4_096
"""Tokens that are kept: each takes some hundred bytes."""


class Remembered(Generic[Found]):
    """The holders of tokens in one event loop. `look_up` asks the database; what it refuses is not kept."""

    def __init__(self, look_up: Together[str, Found], wakeups: Wakeups, clock: Clock) -> None:
        self._look_up = look_up
        self._clock = clock
        self._kept: dict[str, tuple[int, Found]] = {}
        self._changes = 0
        wakeups.subscribe_in_loop(self._hear)

    async def ask(self, secret: str) -> Found:
        """Who holds the token `secret`. Raises as `look_up` does."""
        name, now = tokens.digest(secret), self._clock.now()
        if (kept := self._kept.get(name)) is not None and 0 <= now - kept[0] < KEPT_US:
            return kept[1]
        changes = self._changes
        found = await self._look_up.ask(secret)
        if changes == self._changes:  # else it may have been read before the change
            if len(self._kept) >= _MOST:
                self._kept.clear()
            self._kept[name] = (now, found)
        return found

    def _hear(self, topics: frozenset[str]) -> None:
        if CREDENTIALS in topics:
            self._changes += 1
            self._kept.clear()
