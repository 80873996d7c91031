"""Who a secret belongs to, and what follows from having one. Plain functions of a database session."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlalchemy.orm import Session

from drumline_server.base import callers
from drumline_server.base.callers import Principal, Role, WorkerPrincipal
from drumline_server.base.errors import DrumlineError, UnauthenticatedError
from drumline_server.base.settings import Clock
from drumline_server.storage import tokens
from drumline_server.storage.group_commit import BatchingExecutor
from drumline_server.storage.notifications import CREDENTIALS, CommitNews

SECOND = 1_000_000
TOUCH_EVERY = 60 * SECOND
"""The last use of a credential is noted at most once a minute: noting is a write."""
REFUSED = "The token is not valid: it is unknown, expired, revoked or of another kind."


@dataclass(frozen=True, slots=True)
class Authentication:
    """A principal, and whether the use of its credential is worth noting."""

    principal: Principal
    stale: bool


def principal_of_token(session: Session, secret: str, *, now: int) -> Authentication:
    """The person or program that holds this API token. Raises UnauthenticatedError."""
    (found,) = principals_of_tokens(session, [secret], now=now)
    if isinstance(found, DrumlineError):
        raise found
    return found


def principals_of_tokens(session: Session, secrets: Sequence[str], *, now: int) -> list[Authentication | DrumlineError]:
    """For each API token what `principal_of_token` returns or raises."""
    return [
        UnauthenticatedError(REFUSED) if row is None else _authentication(row, now)
        for row in _live(session, secrets, "pat", now)
    ]


def principal_of_session(session: Session, cookie: str, *, idle_s: int, now: int) -> Authentication:
    """The person behind this browser session. Raises UnauthenticatedError once it ended or idled too long."""
    row = tokens.live_session(session, callers.digest(cookie), now - idle_s * SECOND, now)
    if row is None:
        raise UnauthenticatedError("The session has ended.", hint="Sign in again.")
    principal = Principal(
        project_id=row.session.project_id,
        project_name=row.project_name,
        role=Role.of(row.session.role),
        kind="session",
        name=row.session.principal,
        session_id=row.session.id,
        session_token_id=row.session.token_id,
    )
    return Authentication(principal, _is_stale(row.session.last_used_at, now))


def note_use(session: Session, principal: Principal, *, now: int) -> None:
    """Writes down that the principal's credential was used."""
    if principal.token_id is not None:
        tokens.touch_token(session, principal.token_id, now)
    if principal.session_id is not None:
        tokens.touch_session(session, principal.session_id, now)


def is_still_good(session: Session, principal: Principal, *, idle_s: int, now: int) -> bool:
    """Whether the credential by which the principal came in has not ended since."""
    if principal.token_id is not None:
        return tokens.is_live_token(session, principal.token_id, now)
    return tokens.is_live_session(session, principal.session_id or "", now - idle_s * SECOND, now)


def require_live(session: Session, token_id: str, *, now: int) -> None:
    """Raises UnauthenticatedError for a token that has ended, also one that is cached (`TokenCache`)."""
    if not tokens.is_live_token(session, token_id, now):
        raise UnauthenticatedError(REFUSED)


def workers_of_tokens(session: Session, secrets: Sequence[str], *, now: int) -> list[WorkerPrincipal | DrumlineError]:
    """The worker that holds each token, or UnauthenticatedError."""
    hint = "Enrol this worker again with a new enrolment token."
    return [
        UnauthenticatedError(REFUSED, hint=hint)
        if row is None or row.host_id is None
        else WorkerPrincipal(host_id=row.host_id, token_id=row.id)
        for row in _live(session, secrets, "wrk", now)
    ]


def _live(session: Session, secrets: Sequence[str], kind: callers.TokenKind, now: int) -> list[tokens.TokenRow | None]:
    hashes = [callers.digest(secret) if callers.is_well_formed(secret, kind) else "" for secret in secrets]
    found = tokens.live_tokens(session, sorted({each for each in hashes if each}), kind, now)
    return [found.get(each) for each in hashes]


def _authentication(row: tokens.TokenRow, now: int) -> Authentication:
    principal = Principal(
        project_id=row.project_id,
        project_name=row.project_name,
        role=Role.of(row.role),
        kind="token",
        name=row.name,
        token_id=row.id,
    )
    return Authentication(principal, _is_stale(row.last_used_at, now))


def _is_stale(last_used_at: int | None, now: int) -> bool:
    return last_used_at is None or now - last_used_at >= TOUCH_EVERY


Holder = TypeVar("Holder")
KEPT_US = 1_000_000
_MOST = 4_096
"""Tokens that are kept, of some hundred bytes each; one more, and all are looked up again."""


@dataclass(frozen=True, slots=True)
class _Cached(Generic[Holder]):
    found: Holder
    at: int
    """On the server's clock, by which tokens expire."""
    asked: float
    """On a clock that nobody sets back."""


class TokenCache(Generic[Holder]):
    """The holders of tokens in one event loop. `look_up` asks the database; what it refuses is not kept."""

    def __init__(
        self,
        look_up: BatchingExecutor[str, Holder],
        commit_news: CommitNews,
        clock: Clock,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look_up = look_up
        self._clock = clock
        self._monotonic = monotonic
        self._kept: dict[str, _Cached[Holder]] = {}
        self._changes = 0
        commit_news.subscribe_in_loop(self._hear)

    async def get(self, secret: str) -> Holder:
        """Who holds the token `secret`. Raises as `look_up` does."""
        name, now, asked = callers.digest(secret), self._clock.now(), self._monotonic()
        kept = self._kept.pop(name, None)
        if kept is not None and 0 <= now - kept.at < KEPT_US and asked - kept.asked < KEPT_US / 1e6:
            self._kept[name] = kept
            return kept.found
        changes = self._changes
        found = await self._look_up.submit(secret)
        if changes == self._changes:  # else it may have been read before the change
            if len(self._kept) >= _MOST:
                self._kept.clear()
            self._kept[name] = _Cached(found, now, asked)
        return found

    def forget(self, secret: str) -> None:
        """The next request with this token looks it up."""
        self._kept.pop(callers.digest(secret), None)

    def _hear(self, topics: frozenset[str]) -> None:
        if CREDENTIALS in topics:
            self._changes += 1
            self._kept.clear()
