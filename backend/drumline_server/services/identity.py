"""Who a secret belongs to, and what follows from having one; and browser sessions: how one is opened, by a one-time
code or a token, and how it ends. Plain functions of a database session.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.api import PrincipalRef
from drumline.contracts.base import new_id
from drumline_server.base import callers
from drumline_server.base.callers import Principal, Role, WorkerPrincipal
from drumline_server.base.errors import CapError, DrumlineError, InvalidRequestError, UnauthenticatedError
from drumline_server.base.settings import Clock, Settings
from drumline_server.storage import history, tokens
from drumline_server.storage.models import BrowserSession, LoginCode, Token
from drumline_server.storage.notifications import CREDENTIALS, CommitNews
from drumline_server.storage.requests import BatchingExecutor

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


def may_enrol(session: Session, secret: str, *, now: int) -> bool:
    """Whether this enrolment token could be spent now."""
    if not callers.is_well_formed(secret, "enr"):
        return False
    return tokens.live_token(session, callers.digest(secret), "enr", now) is not None


def unknown_enrolment() -> UnauthenticatedError:
    """What an enrolment token that cannot be spent is answered with."""
    return UnauthenticatedError(
        "The enrolment token is not valid: it is unknown, expired or was used before.",
        hint="Make a new one: drumline server token --kind enr.",
    )


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


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """A new session: the cookie's value, shown to the browser once, and who it is."""

    cookie: str
    session: api.Session
    expires_at: int


@dataclass(frozen=True, slots=True)
class _Owner:
    project_id: str
    role: str
    name: str
    token_id: str | None


def create_login_code(session: Session, principal: Principal, settings: Settings, *, now: int) -> api.LoginCode:
    """A one-time code that signs a browser in as `principal`. Raises CapError and UnauthenticatedError."""
    owner = principal.owner_token_id
    token = tokens.live_token_held(session, owner, now) if owner else None
    if token is None:
        raise UnauthenticatedError("The token that asks for a login code has ended.")
    tokens.forget_ended(session, token.id, now - settings.session_idle_s * SECOND, now)
    if tokens.count_live_codes_of(session, token.id, now) >= settings.login_codes_per_token:
        raise CapError(
            "Too many login codes of this token are waiting to be used",
            settings.login_codes_per_token,
            "DRUMLINE_LOGIN_CODES_PER_TOKEN",
            hint=f"Use one, or wait: a code is good for {settings.login_code_s} s.",
            retry_after_s=settings.login_code_s,
        )
    code = callers.new_secret()
    expires_at = min(now + settings.login_code_s * SECOND, token.expires_at)
    session.add(
        LoginCode(
            code_hash=callers.digest(code),
            project_id=principal.project_id,
            role=principal.role.label,
            token_id=token.id,
            created_at=now,
            expires_at=expires_at,
        )
    )
    history.record_audit(
        session, "login_code.create", "", principal=principal.ref, project_id=principal.project_id, now=now
    )
    return api.LoginCode(code=code, expires_at=expires_at)


def sign_in(session: Session, request: api.LoginRequest, settings: Settings, *, client: str, now: int) -> OpenedSession:
    """Opens a browser session for the holder of a code or a token.

    Raises:
        InvalidRequestError: not exactly one of code and token is given.
        UnauthenticatedError: it is not good (any more).
        CapError: too many sessions that its token opened are not over.

    """
    if (request.code is None) == (request.token is None):
        raise InvalidRequestError("code", "give either code or token, one of them")
    if request.code is not None:
        owner = _owner_of_code(session, request.code.get_secret_value(), now)
    else:
        assert request.token is not None
        owner = _owner_of_token(session, request.token.get_secret_value(), now)
    token = _token_behind(session, owner, settings, now)
    cookie = callers.new_secret()
    row = BrowserSession(
        id=new_id("ses"),
        project_id=owner.project_id,
        cookie_hash=callers.digest(cookie),
        principal=owner.name,
        role=owner.role,
        token_id=token.id,
        created_at=now,
        last_used_at=now,
        expires_at=min(now + settings.session_absolute_s * SECOND, token.expires_at),
    )
    session.add(row)
    session.flush()
    who, project_id = PrincipalRef(id=owner.token_id, name=owner.name), owner.project_id
    history.record_audit(session, "session.open", row.id, principal=who, project_id=project_id, now=now, client=client)
    opened = tokens.live_session(session, row.cookie_hash, now - 1, now)
    assert opened is not None
    return OpenedSession(cookie, view_session(opened), row.expires_at)


def describe_session(
    session: Session, principal: Principal, settings: Settings, cookie: str | None, *, now: int
) -> api.Session:
    """Who is signed in; a bearer token has no session and thus no end of one."""
    if principal.session_id is not None and cookie is not None:
        row = tokens.live_session(session, callers.digest(cookie), now - settings.session_idle_s * SECOND, now)
        if row is not None:
            return view_session(row)
    return api.Session(
        principal=principal.name,
        role=principal.role.label,
        project=principal.project_id,
        project_name=principal.project_name,
        expires_at=None,
    )


def sign_out(session: Session, principal: Principal, *, now: int) -> None:
    """Ends the session of `principal`; a bearer token stays good."""
    if principal.session_id is None:
        return
    tokens.revoke_session(session, principal.session_id, now)
    history.record_audit(
        session,
        "session.close",
        principal.session_id,
        principal=principal.ref,
        project_id=principal.project_id,
        now=now,
    )


def view_session(row: tokens.SessionRow) -> api.Session:
    """The session as its owner may see it."""
    return api.Session.model_validate(
        {
            "principal": row.session.principal,
            "role": row.session.role,
            "project": row.session.project_id,
            "project_name": row.project_name,
            "expires_at": row.session.expires_at,
        }
    )


def _token_behind(session: Session, owner: _Owner, settings: Settings, now: int) -> Token:
    """The token that opens a session, if it is good and has not opened too many."""
    token = tokens.live_token_held(session, owner.token_id, now) if owner.token_id else None
    if token is None:
        raise UnauthenticatedError("The token behind this login has ended.", hint="Make a new login link.")
    idle_since = now - settings.session_idle_s * SECOND
    tokens.forget_ended(session, token.id, idle_since, now)
    if tokens.count_live_sessions_of(session, token.id, idle_since, now) >= settings.sessions_per_token:
        raise CapError(
            "Too many browser sessions of this token are open",
            settings.sessions_per_token,
            "DRUMLINE_SESSIONS_PER_TOKEN",
            hint="Sign out somewhere, or revoke the token if these are not yours.",
            retry_after_s=60,
        )
    return token


def is_good(session: Session, request: api.LoginRequest, *, now: int) -> bool:
    """Whether the code or token of a login could open a session: a look, which spends nothing."""
    if request.code is not None:
        return tokens.is_live_code(session, callers.digest(request.code.get_secret_value()), now)
    secret = request.token.get_secret_value() if request.token is not None else ""
    formed = callers.is_well_formed(secret, "pat")
    return formed and tokens.live_token(session, callers.digest(secret), "pat", now) is not None


def _owner_of_code(session: Session, code: str, now: int) -> _Owner:
    row = tokens.spend_login_code(session, callers.digest(code), now)
    if row is None:
        raise UnauthenticatedError(
            "The login code is not valid: it is unknown, expired or was used before.",
            hint="Make a new link: drumline server login-link.",
        )
    token = session.get(Token, row.token_id) if row.token_id else None
    return _Owner(row.project_id, row.role, token.name if token else "login link", row.token_id)


def _owner_of_token(session: Session, secret: str, now: int) -> _Owner:
    principal = principal_of_token(session, secret, now=now).principal
    return _Owner(principal.project_id, principal.role.label, principal.name, principal.token_id)
