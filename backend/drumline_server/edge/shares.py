"""Counts the requests that are under way by token, so that none takes the places of the others."""

from asyncio import Semaphore
from collections import Counter, defaultdict
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Literal

from starlette.types import Scope

from drumline_server.errors import CapError

Kind = Literal["read", "upload", "batch", "large"]
"""What has a turn: a request that changes nothing, a bundle on its way in, a batch of runs, a large answer."""
_STATE = "counted_for"


class Shares:
    """The requests under way of each token, streams among them. Used in the event loop only."""

    def __init__(self, per_token: int, *, reads: int, uploads: int, large: int, batches: int = 1) -> None:
        self._per_token = per_token
        self._under_way: Counter[str] = Counter()
        self._most = {"read": reads, "upload": uploads, "batch": batches, "large": large}
        self._turns: dict[str, dict[str, Semaphore]] = defaultdict(dict)

    def begin(self, scope: Scope, token: str) -> None:
        """Counts a request for the token that it came with, once. Raises CapError if too many are under way."""
        state = scope.setdefault("state", {})
        if _STATE in state:
            return
        if self._under_way[token] >= self._per_token:
            raise CapError(
                "Too many requests of this token are under way",
                self._per_token,
                "DRUMLINE_REQUESTS_PER_TOKEN",
                hint="Wait for the answers to some.",
                retry_after_s=1,
            )
        self._under_way[token] += 1
        state[_STATE] = token

    def turn(self, scope: Scope, kind: Kind) -> AbstractAsyncContextManager[None]:
        """Lets a counted request be worked on together with so many others of its token; those that come later wait.

        The database answers in the order in which it is asked: whoever asks for much at once would have all others,
        heartbeats too, wait for all of it.
        """
        token = scope.get("state", {}).get(_STATE)
        if token is None:
            return nullcontext()
        turns = self._turns[token]
        if kind not in turns:
            turns[kind] = Semaphore(self._most[kind])
        return turns[kind]

    def hold_large(self, scope: Scope) -> AbstractAsyncContextManager[None]:
        """A turn for an answer that stays in memory until a reader, perhaps a slow one, has all of it.

        Raises CapError where the token has too many: nothing else of it is to wait for a slow reader.
        """
        turn = self.turn(scope, "large")
        if isinstance(turn, Semaphore) and turn.locked():
            raise CapError(
                "Too many large answers to this token are being read",
                self._most["large"],
                "DRUMLINE_LARGE_ANSWERS_PER_TOKEN",
                hint="Read some to their end.",
                retry_after_s=1,
            )
        return turn

    def end(self, scope: Scope) -> None:
        """Counts a request no more; for one that was never counted, nothing."""
        token = scope.get("state", {}).pop(_STATE, None)
        if token is None:
            return
        self._under_way[token] -= 1
        if not self._under_way[token]:
            del self._under_way[token]
            self._turns.pop(token, None)
