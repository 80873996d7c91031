"""Counts the requests that are under way by token, so that none takes the places of the others."""

from collections import Counter

from starlette.types import Scope

from drumline_server.errors import CapError

_STATE = "counted_for"


class Shares:
    """The requests under way of each token, streams among them. Used in the event loop only."""

    def __init__(self, per_token: int) -> None:
        self._per_token = per_token
        self._under_way: Counter[str] = Counter()

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

    def end(self, scope: Scope) -> None:
        """Counts a request no more; for one that was never counted, nothing."""
        token = scope.get("state", {}).pop(_STATE, None)
        if token is None:
            return
        self._under_way[token] -= 1
        if not self._under_way[token]:
            del self._under_way[token]
