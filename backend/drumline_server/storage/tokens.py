"""SQL of projects, tokens, browser sessions and login codes."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Update, bindparam, delete, func, or_, select, text, tuple_, update
from sqlalchemy.orm import Session

from drumline.contracts.api import PrincipalRef
from drumline_server.storage.models import BrowserSession, LoginCode, Project, Token, principal_columns, table_of
from drumline_server.storage.notifications import CREDENTIALS, announce

_BOOTSTRAP_LOCK = 0x6472756D_626F6F74
"""Of PostgreSQL's advisory locks, beside those of idempotency keys, which are spread over all numbers."""


class TokenRow(NamedTuple):
    """What requests need of a live token, with the name of its project."""

    id: str
    project_id: str
    role: str
    name: str
    host_id: str | None
    last_used_at: int | None
    project_name: str


_TOKEN, _PROJECT = table_of(Token).c, table_of(Project).c
_LIVE_TOKENS = (
    select(
        _TOKEN.secret_hash,
        *(_TOKEN[name] for name in TokenRow._fields[:-1]),
        _PROJECT.name.label(TokenRow._fields[-1]),
    )
    .join_from(table_of(Token), table_of(Project), _PROJECT.id == _TOKEN.project_id)
    .where(
        _TOKEN.secret_hash.in_(bindparam("secret_hashes", expanding=True)),
        _TOKEN.kind == bindparam("kind"),
        _TOKEN.expires_at > bindparam("now"),
        _TOKEN.revoked_at.is_(None),
        _TOKEN.used_at.is_(None),
    )
)
"""Asked by every request: made once and of tables, because making it costs more than running it, and so do entities."""


class SessionRow(NamedTuple):
    """A live browser session with the name of its project."""

    session: BrowserSession
    project_name: str


def _revocation() -> Update:
    """Revokes a token of a project and all that were made by it, by those, and so on."""
    root = (
        select(_TOKEN.id)
        .where(_TOKEN.id == bindparam("root"), _TOKEN.project_id == bindparam("project"))
        .cte("tree", recursive=True)
    )
    tree = root.union(select(_TOKEN.id).join(root, _TOKEN.made_by == root.c.id))
    return (
        update(table_of(Token))
        .where(_TOKEN.id.in_(select(tree.c.id)), _TOKEN.revoked_at.is_(None))
        .values(revoked_at=bindparam("now"), revoked_by=bindparam("by"), revoked_by_id=bindparam("by_id"))
        .returning(_TOKEN.id)
    )


_REVOCATION = _revocation()


def live_token(session: Session, secret_hash: str, kind: str, now: int) -> TokenRow | None:
    """The token of this hash and kind that is neither expired, revoked nor spent."""
    return live_tokens(session, [secret_hash], kind, now).get(secret_hash)


def live_tokens(session: Session, secret_hashes: Sequence[str], kind: str, now: int) -> dict[str, TokenRow]:
    """Those tokens of these hashes and that kind that are neither expired, revoked nor spent, by hash."""
    rows = session.execute(_LIVE_TOKENS, {"secret_hashes": secret_hashes, "kind": kind, "now": now})
    return {row.secret_hash: TokenRow._make(row[1:]) for row in rows}


def live_session(session: Session, cookie_hash: str, idle_since: int, now: int) -> SessionRow | None:
    """The session of this cookie if neither it nor the token behind it has ended."""
    row = session.execute(
        select(BrowserSession, Project.name)
        .join(Project, Project.id == BrowserSession.project_id)
        .outerjoin(Token, Token.id == BrowserSession.token_id)
        .where(BrowserSession.cookie_hash == cookie_hash, *_session_is_live(idle_since, now))
    ).one_or_none()
    return None if row is None else SessionRow(row[0], row[1])


def is_live_session(session: Session, session_id: str, idle_since: int, now: int) -> bool:
    """Whether neither the session nor the token behind it has ended."""
    query = (
        select(BrowserSession.id)
        .outerjoin(Token, Token.id == BrowserSession.token_id)
        .where(BrowserSession.id == session_id, *_session_is_live(idle_since, now))
    )
    return session.scalars(query).one_or_none() is not None


def is_live_token(session: Session, token_id: str, now: int) -> bool:
    """Whether the token is neither expired nor revoked."""
    query = select(Token.id).where(Token.id == token_id, Token.expires_at > now, Token.revoked_at.is_(None))
    return session.scalars(query).one_or_none() is not None


def live_token_held(session: Session, token_id: str, now: int) -> Token | None:
    """The token if it is live, and nobody revokes it before this transaction has ended."""
    query = select(Token).where(Token.id == token_id, Token.expires_at > now, Token.revoked_at.is_(None))
    return session.scalars(query.with_for_update(read=True)).one_or_none()


def count_live_tokens_made_by(session: Session, token_id: str, now: int) -> int:
    """How many tokens of people, programs and for enrolment this one made that have not ended."""
    query = select(func.count()).where(
        Token.made_by == token_id, Token.expires_at > now, Token.revoked_at.is_(None), Token.used_at.is_(None)
    )
    return session.scalar(query) or 0


def count_live_sessions_of(session: Session, token_id: str, idle_since: int, now: int) -> int:
    """How many sessions that this token opened have not ended."""
    query = select(func.count()).where(
        BrowserSession.token_id == token_id,
        BrowserSession.expires_at > now,
        BrowserSession.last_used_at > idle_since,
        BrowserSession.revoked_at.is_(None),
    )
    return session.scalar(query) or 0


def count_live_codes_of(session: Session, token_id: str, now: int) -> int:
    """How many login codes of this token are still good."""
    query = select(func.count()).where(
        LoginCode.token_id == token_id, LoginCode.expires_at > now, LoginCode.used_at.is_(None)
    )
    return session.scalar(query) or 0


def forget_ended(session: Session, token_id: str, idle_since: int, now: int) -> None:
    """Deletes the sessions and login codes of this token that have ended: the audit log remembers them."""
    ended = or_(
        BrowserSession.expires_at <= now,
        BrowserSession.last_used_at <= idle_since,
        BrowserSession.revoked_at.is_not(None),
    )
    session.execute(delete(BrowserSession).where(BrowserSession.token_id == token_id, ended))
    spent = or_(LoginCode.expires_at <= now, LoginCode.used_at.is_not(None))
    session.execute(delete(LoginCode).where(LoginCode.token_id == token_id, spent))


def is_live_code(session: Session, code_hash: str, now: int) -> bool:
    """Whether a login code of this hash could be spent."""
    query = select(LoginCode.code_hash).where(
        LoginCode.code_hash == code_hash, LoginCode.expires_at > now, LoginCode.used_at.is_(None)
    )
    return session.scalars(query).one_or_none() is not None


def touch_token(session: Session, token_id: str, now: int) -> None:
    """Notes that the token was used."""
    session.execute(update(Token).where(Token.id == token_id).values(last_used_at=now))


def touch_session(session: Session, session_id: str, now: int) -> None:
    """Notes that the browser session was used."""
    session.execute(update(BrowserSession).where(BrowserSession.id == session_id).values(last_used_at=now))


def spend_token(session: Session, secret_hash: str, now: int) -> Token | None:
    """The enrolment token of this hash, spent by this very call; `None` if it is not live."""
    return session.scalars(
        update(Token)
        .where(
            Token.secret_hash == secret_hash,
            Token.kind == "enr",
            Token.expires_at > now,
            Token.revoked_at.is_(None),
            Token.used_at.is_(None),
        )
        .values(used_at=now, last_used_at=now)
        .returning(Token)
    ).one_or_none()


def spend_login_code(session: Session, code_hash: str, now: int) -> LoginCode | None:
    """The login code of this hash, spent by this very call; `None` if it is not live."""
    return session.scalars(
        update(LoginCode)
        .where(LoginCode.code_hash == code_hash, LoginCode.expires_at > now, LoginCode.used_at.is_(None))
        .values(used_at=now)
        .returning(LoginCode)
    ).one_or_none()


def revoke_token(session: Session, project_id: str, token_id: str, by: PrincipalRef, now: int) -> Token | None:
    """The token of the project, revoked now with all that came of it; `None` if there is none.

    Looks again until nothing is left: a token that was being made meanwhile is seen once its maker's row is ours.
    """
    values = {"root": token_id, "project": project_id, "now": now, **principal_columns("by", by)}
    while session.execute(_REVOCATION, values).all():
        pass
    announce(session, CREDENTIALS)
    return session.scalars(select(Token).where(Token.id == token_id, Token.project_id == project_id)).one_or_none()


def revoke_worker_tokens(session: Session, host_id: str, by: PrincipalRef, now: int) -> None:
    """Ends every token that the host had until now."""
    values = {"revoked_at": now, **principal_columns("revoked_by", by)}
    session.execute(update(Token).where(Token.host_id == host_id, Token.revoked_at.is_(None)).values(values))
    announce(session, CREDENTIALS)


def revoke_session(session: Session, session_id: str, now: int) -> None:
    """Ends a browser session."""
    session.execute(
        update(BrowserSession)
        .where(BrowserSession.id == session_id, BrowserSession.revoked_at.is_(None))
        .values(revoked_at=now)
    )


def tokens_before(
    session: Session, project_id: str, before: tuple[int | str, ...] | None, count: int
) -> Sequence[Token]:
    """Tokens of the project for people and enrolment, newest first, from after the key (created_at, id) `before`."""
    query = select(Token).where(Token.project_id == project_id)
    if before is not None:
        query = query.where(tuple_(Token.created_at, Token.id) < before)
    return session.scalars(query.order_by(Token.created_at.desc(), Token.id.desc()).limit(count)).all()


def project_named(session: Session, name: str) -> Project | None:
    """The project of this name."""
    return session.scalars(select(Project).where(Project.name == name)).one_or_none()


def _session_is_live(idle_since: int, now: int) -> tuple[ColumnElement[bool], ...]:
    return (
        BrowserSession.expires_at > now,
        BrowserSession.last_used_at > idle_since,
        BrowserSession.revoked_at.is_(None),
        Token.revoked_at.is_(None),
        or_(BrowserSession.token_id.is_(None), Token.expires_at > now),
    )


def lock_bootstrap(session: Session) -> None:
    """Makes servers that start at once take turns until the end of the transaction; writers of SQLite do anyway."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _BOOTSTRAP_LOCK})
