"""Who a secret belongs to, and what follows from having one. Plain functions of a database session."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.ids import new_id
from drumline_server import audit
from drumline_server.auth import queries, tokens
from drumline_server.auth.principal import Principal, Role, WorkerPrincipal
from drumline_server.errors import CapError, DrumlineError, ForbiddenError, NotFoundError, UnauthenticatedError
from drumline_server.models import Token
from drumline_server.paging import decode_cursor, page_of

SECOND = 1_000_000
WORKER_TOKEN_S = 365 * 86_400
"""A worker's token lives a year; enrolling the host anew replaces it."""
MAX_ENROLMENT_S = 86_400
TOUCH_EVERY = 60 * SECOND
"""The last use of a credential is noted at most once a minute: noting is a write."""
_REFUSED = "The token is not valid: it is unknown, expired, revoked or of another kind."


@dataclass(frozen=True, slots=True)
class Recognised:
    """A principal, and whether the use of its credential is worth noting."""

    principal: Principal
    stale: bool


def principal_of_token(session: Session, secret: str, *, now: int) -> Recognised:
    """The person or program that holds this API token. Raises UnauthenticatedError."""
    (found,) = principals_of_tokens(session, [secret], now=now)
    if isinstance(found, DrumlineError):
        raise found
    return found


def principals_of_tokens(session: Session, secrets: Sequence[str], *, now: int) -> list[Recognised | DrumlineError]:
    """For each API token what `principal_of_token` returns or raises."""
    return [
        UnauthenticatedError(_REFUSED) if row is None else _recognised(row, now)
        for row in _live(session, secrets, "pat", now)
    ]


def principal_of_session(session: Session, cookie: str, *, idle_s: int, now: int) -> Recognised:
    """The person behind this browser session. Raises UnauthenticatedError once it ended or idled too long."""
    row = queries.live_session(session, tokens.digest(cookie), now - idle_s * SECOND, now)
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
    return Recognised(principal, _is_stale(row.session.last_used_at, now))


def note_use(session: Session, principal: Principal, *, now: int) -> None:
    """Writes down that the principal's credential was used."""
    if principal.token_id is not None:
        queries.touch_token(session, principal.token_id, now)
    if principal.session_id is not None:
        queries.touch_session(session, principal.session_id, now)


def is_still_good(session: Session, principal: Principal, *, idle_s: int, now: int) -> bool:
    """Whether the credential by which the principal came in has not ended since."""
    if principal.token_id is not None:
        return queries.is_live_token(session, principal.token_id, now)
    return queries.is_live_session(session, principal.session_id or "", now - idle_s * SECOND, now)


def may_enrol(session: Session, secret: str, *, now: int) -> bool:
    """Whether this enrolment token could be spent now."""
    return _formed(secret, "enr") and queries.live_token(session, tokens.digest(secret), "enr", now) is not None


def unknown_enrolment() -> UnauthenticatedError:
    """What an enrolment token that cannot be spent is answered with."""
    return UnauthenticatedError(
        "The enrolment token is not valid: it is unknown, expired or was used before.",
        hint="Make a new one: drumline server token --kind enr.",
    )


def require_live(session: Session, token_id: str, *, now: int) -> None:
    """Raises UnauthenticatedError for a token that has ended, also one that is remembered (`remembered.py`)."""
    if not queries.is_live_token(session, token_id, now):
        raise UnauthenticatedError(_REFUSED)


def workers_of_tokens(session: Session, secrets: Sequence[str], *, now: int) -> list[WorkerPrincipal | DrumlineError]:
    """The worker that holds each token, or UnauthenticatedError."""
    hint = "Enrol this worker again with a new enrolment token."
    return [
        UnauthenticatedError(_REFUSED, hint=hint)
        if row is None or row.host_id is None
        else WorkerPrincipal(host_id=row.host_id, token_id=row.id)
        for row in _live(session, secrets, "wrk", now)
    ]


@dataclass(frozen=True, slots=True)
class Maker:
    """A token that makes another, and how many of its making may be good at once."""

    token_id: str
    most: int


@dataclass(frozen=True, slots=True)
class Redeemed:
    """A spent enrolment token: the project that its host joins, and the token's id."""

    project_id: str
    token_id: str


def redeem_enrolment(session: Session, secret: str, host_name: str, *, now: int) -> Redeemed:
    """Spends a single-use enrolment token for the host `host_name`.

    Raises:
        UnauthenticatedError: the token is unknown, expired, revoked or was spent before.

    """
    token = queries.spend_token(session, tokens.digest(secret), now) if _formed(secret, "enr") else None
    if token is None:
        raise unknown_enrolment()
    audit.record(session, "host.enroll", host_name, principal=token.name, project_id=token.project_id, now=now)
    return Redeemed(token.project_id, token.id)


def issue_worker_token(
    session: Session, *, project_id: str, host_id: str, host_name: str, now: int, made_by: str | None = None
) -> str:
    """A new token for the worker of a host; every token that the host had before is revoked.

    `made_by`, the enrolment token, is spent and soon over: the worker's outlives it, and ends with it only by a
    revocation.
    """
    queries.revoke_worker_tokens(session, host_id, now)
    secret = tokens.new_token("wrk")
    token = _token(secret, "wrk", "worker", host_name, project_id, now, now + WORKER_TOKEN_S * SECOND)
    token.host_id, token.made_by = host_id, made_by
    session.add(token)
    return secret


def create_token(
    session: Session, request: api.TokenCreate, *, project_id: str, by: str, now: int, maker: Maker | None = None
) -> api.TokenCreated:
    """Makes the token that `request` describes; its secret is in the answer and nowhere else.

    A token that another makes may no more and lives no longer than its maker.

    Raises:
        UnauthenticatedError: the maker has ended.
        ForbiddenError: the maker has a smaller role.
        CapError: too many tokens that the maker made are still good.

    """
    lifetime_s = min(request.expires_in_s, MAX_ENROLMENT_S) if request.kind == "enr" else request.expires_in_s
    expires_at = now + lifetime_s * SECOND
    if maker is not None:
        expires_at = min(expires_at, _allowed(session, maker, request, now).expires_at)
    secret = tokens.new_token(request.kind)
    role = "worker" if request.kind == "enr" else request.role
    token = _token(secret, request.kind, role, request.name, project_id, now, expires_at)
    token.made_by = maker.token_id if maker else None
    session.add(token)
    audit.record(
        session,
        "token.create",
        token.id,
        principal=by,
        project_id=project_id,
        now=now,
        body={"kind": request.kind, "role": role, "name": request.name, "made_by": token.made_by},
    )
    return api.TokenCreated(**shown(token).model_dump(), secret=secret)


def _allowed(session: Session, maker: Maker, request: api.TokenCreate, now: int) -> Token:
    """The token that makes another, if it may."""
    token = queries.live_token_held(session, maker.token_id, now)
    if token is None:
        raise UnauthenticatedError(_REFUSED)
    if request.kind == "pat" and Role.of(token.role) < Role.of(request.role):
        raise ForbiddenError(
            f"A token with the role {token.role} cannot make one with the role {request.role}.",
            hint=f"Ask for the role {token.role}, or ask somebody with the role {request.role}.",
        )
    made = queries.count_live_tokens_made_by(session, maker.token_id, now)
    if made >= maker.most:
        raise CapError(
            f"This token made {made} tokens that are still good",
            maker.most,
            "DRUMLINE_TOKENS_PER_TOKEN",
            hint="Revoke those that are not needed any more.",
        )
    return token


def list_tokens(session: Session, project_id: str, *, cursor: str | None, limit: int) -> api.Page[api.Token]:
    """Tokens of the project, newest first."""
    before = decode_cursor(cursor, int, str) if cursor else None
    rows = queries.tokens_before(session, project_id, before, limit + 1)
    return page_of(rows, limit, item=shown, key=lambda token: (token.created_at, token.id))


def revoke_token(session: Session, project_id: str, token_id: str, *, by: str, now: int) -> None:
    """Ends a token and every session that it opened. Raises NotFoundError."""
    if queries.revoke_token(session, project_id, token_id, now) is None:
        raise NotFoundError("token", token_id)
    audit.record(session, "token.revoke", token_id, principal=by, project_id=project_id, now=now)


def shown(token: Token) -> api.Token:
    """The token as it may be listed."""
    return api.Token(
        id=token.id,
        name=token.name,
        kind=token.kind,
        role=token.role,
        last4=token.last4,
        created_at=token.created_at,
        expires_at=token.expires_at,
        last_used_at=token.last_used_at,
        revoked_at=token.revoked_at,
        made_by=token.made_by,
    )


def _token(secret: str, kind: str, role: str, name: str, project_id: str, now: int, expires_at: int) -> Token:
    return Token(
        id=new_id("tok"),
        project_id=project_id,
        kind=kind,
        role=role,
        name=name,
        secret_hash=tokens.digest(secret),
        last4=secret[-4:],
        created_at=now,
        expires_at=expires_at,
    )


def _live(session: Session, secrets: Sequence[str], kind: tokens.TokenKind, now: int) -> list[queries.TokenRow | None]:
    hashes = [tokens.digest(secret) if _formed(secret, kind) else "" for secret in secrets]
    found = queries.live_tokens(session, sorted({each for each in hashes if each}), kind, now)
    return [found.get(each) for each in hashes]


def _recognised(row: queries.TokenRow, now: int) -> Recognised:
    principal = Principal(
        project_id=row.project_id,
        project_name=row.project_name,
        role=Role.of(row.role),
        kind="token",
        name=row.name,
        token_id=row.id,
    )
    return Recognised(principal, _is_stale(row.last_used_at, now))


def _formed(secret: str, kind: tokens.TokenKind) -> bool:
    return tokens.is_well_formed(secret, kind)


def _is_stale(last_used_at: int | None, now: int) -> bool:
    return last_used_at is None or now - last_used_at >= TOUCH_EVERY
