"""Tokens that people make, and the one of a host, which a single-use enrolment token becomes."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.api import PrincipalRef
from drumline.contracts.ids import new_id
from drumline.contracts.worker_api import Enroll, Enrolled
from drumline_server.base import callers
from drumline_server.base.callers import Role, decode_cursor, page_of
from drumline_server.base.errors import CapError, ForbiddenError, NotFoundError, UnauthenticatedError
from drumline_server.services.identity import REFUSED, SECOND
from drumline_server.storage import history, tokens
from drumline_server.storage.models import Host, Token, principal_in, set_principal


def enroll(session: Session, secret: str, body: Enroll, *, now: int) -> Enrolled:
    """Spends the enrolment token. A host of that name keeps its identity; its older tokens end.

    Raises UnauthenticatedError if the token is unknown, expired or spent.
    """
    ticket = redeem_enrolment(session, secret, body.name, now=now)
    project_id = ticket.project_id
    host = session.scalar(select(Host).where(Host.project_id == project_id, Host.name == body.name))
    if host is None:
        host = Host(id=new_id("hst"), project_id=project_id, name=body.name, enrolled_at=now)
        session.add(host)
        session.flush()
    token = issue_worker_token(
        session, project_id=project_id, host_id=host.id, host_name=host.name, now=now, made_by=ticket.token
    )
    return Enrolled(host=host.id, token=token)


WORKER_TOKEN_S = 365 * 86_400
"""A worker's token lives a year; enrolling the host again replaces it."""
MAX_ENROLMENT_S = 86_400


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


@dataclass(frozen=True, slots=True)
class Maker:
    """A token that makes another, and how many of its making may be good at once."""

    token_id: str
    most: int


@dataclass(frozen=True, slots=True)
class Redeemed:
    """A spent enrolment token: the project that its host joins, and the token itself."""

    project_id: str
    token: PrincipalRef


def redeem_enrolment(session: Session, secret: str, host_name: str, *, now: int) -> Redeemed:
    """Spends a single-use enrolment token for the host `host_name`.

    Raises:
        UnauthenticatedError: the token is unknown, expired, revoked or was spent before.

    """
    is_formed = callers.is_well_formed(secret, "enr")
    token = tokens.spend_token(session, callers.digest(secret), now) if is_formed else None
    if token is None:
        raise unknown_enrolment()
    history.record_audit(
        session,
        "host.enroll",
        host_name,
        principal=PrincipalRef(id=token.id, name=token.name),
        project_id=token.project_id,
        now=now,
    )
    return Redeemed(token.project_id, PrincipalRef(id=token.id, name=token.name))


def issue_worker_token(
    session: Session, *, project_id: str, host_id: str, host_name: str, now: int, made_by: PrincipalRef | None = None
) -> str:
    """A new token for the worker of a host; every token that the host had before is revoked.

    `made_by`, the enrolment token, is spent and soon over: the worker's outlives it, and ends with it only by a
    revocation.
    """
    tokens.revoke_worker_tokens(session, host_id, made_by or PrincipalRef(), now)
    secret = callers.new_token("wrk")
    token = _token(
        secret,
        kind="wrk",
        role="worker",
        name=host_name,
        project_id=project_id,
        now=now,
        expires_at=now + WORKER_TOKEN_S * SECOND,
    )
    token.host_id, token.made_by = host_id, made_by.id if made_by else None
    set_principal(token, "created_by", made_by)
    session.add(token)
    return secret


def create_token(
    session: Session,
    request: api.TokenCreate,
    *,
    project_id: str,
    by: PrincipalRef,
    now: int,
    maker: Maker | None = None,
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
        expires_at = min(expires_at, _require_allowed(session, maker, request, now).expires_at)
    secret = callers.new_token(request.kind)
    role = "worker" if request.kind == "enr" else request.role
    about = {"kind": request.kind, "role": role, "name": request.name}
    token = _token(secret, **about, project_id=project_id, now=now, expires_at=expires_at)
    token.made_by = maker.token_id if maker else None
    set_principal(token, "created_by", by)
    session.add(token)
    body = {**about, "made_by": token.made_by}
    history.record_audit(session, "token.create", token.id, principal=by, project_id=project_id, now=now, body=body)
    return api.TokenCreated(**view_token(token).model_dump(), secret=secret)


def _require_allowed(session: Session, maker: Maker, request: api.TokenCreate, now: int) -> Token:
    """The token that makes another, if it may."""
    token = tokens.live_token_held(session, maker.token_id, now)
    if token is None:
        raise UnauthenticatedError(REFUSED)
    if request.kind == "pat" and Role.of(token.role) < Role.of(request.role):
        raise ForbiddenError(
            f"A token with the role {token.role} cannot make one with the role {request.role}.",
            hint=f"Ask for the role {token.role}, or ask somebody with the role {request.role}.",
        )
    made = tokens.count_live_tokens_made_by(session, maker.token_id, now)
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
    rows = tokens.tokens_before(session, project_id, before, limit + 1)
    return page_of(rows, limit, item=view_token, key=lambda token: (token.created_at, token.id))


def revoke_token(session: Session, project_id: str, token_id: str, *, by: PrincipalRef, now: int) -> None:
    """Ends a token and every session that it opened. Raises NotFoundError."""
    if tokens.revoke_token(session, project_id, token_id, by, now) is None:
        raise NotFoundError("token", token_id)
    history.record_audit(session, "token.revoke", token_id, principal=by, project_id=project_id, now=now)


def view_token(token: Token) -> api.Token:
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
        created_by=principal_in(token, "created_by"),
        revoked_by=None if token.revoked_at is None else principal_in(token, "revoked_by"),
    )


def _token(secret: str, *, kind: str, role: str, name: str, project_id: str, now: int, expires_at: int) -> Token:
    return Token(
        id=new_id("tok"),
        project_id=project_id,
        kind=kind,
        role=role,
        name=name,
        secret_hash=callers.digest(secret),
        last4=secret[-4:],
        created_at=now,
        expires_at=expires_at,
    )
