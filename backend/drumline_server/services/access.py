"""What a project gives its programs and people: tokens that they make, and the one of a host, which a single-use
enrolment token becomes; and webhooks, made, listed, changed, deleted and tested, with what became of their
deliveries.
"""

import base64
import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.api import DeliveryState, PrincipalRef
from drumline.contracts.base import new_id
from drumline.contracts.worker_api import Enroll, Enrolled
from drumline_server.base import callers
from drumline_server.base.callers import Role, decode_cursor, page_of
from drumline_server.base.errors import (
    CapError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    UnauthenticatedError,
)
from drumline_server.base.settings import Settings
from drumline_server.lifecycle import alerts
from drumline_server.scheduling.webhooks import SECRET_PREFIX, require_reachable
from drumline_server.services.identity import REFUSED, SECOND, unknown_enrolment
from drumline_server.storage import history, tokens
from drumline_server.storage.models import (
    Host,
    Token,
    Webhook,
    WebhookDelivery,
    principal_columns,
    principal_in,
    set_principal,
)
from drumline_server.storage.notifications import WEBHOOKS, announce

WORKER_TOKEN_S = 365 * 86_400
"""A worker's token lives a year; enrolling the host again replaces it."""
MAX_ENROLMENT_S = 86_400
_SECRET_BYTES = 32
_MOST_COUNTED = 1_000


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


def create_webhook(
    session: Session, project_id: str, request: api.WebhookCreate, settings: Settings, *, by: PrincipalRef, now: int
) -> api.WebhookCreated:
    """Makes a webhook; its secret is in the answer and never shown again.

    Raises InvalidRequestError for an address that could never be posted to, CapError for too many webhooks,
    DrumlineError for the name of another one.
    """
    require_reachable(request.url, settings)
    of_project = (Webhook.project_id == project_id, Webhook.deleted_at.is_(None))
    there = session.scalar(select(func.count()).select_from(Webhook).where(*of_project)) or 0
    if there >= settings.webhooks_per_project:
        raise CapError(
            f"The project has {there} webhooks",
            settings.webhooks_per_project,
            "DRUMLINE_WEBHOOKS_PER_PROJECT",
            hint="Delete one that is not needed any more.",
        )
    alerts.require_free_name(session, project_id, request.name)
    secret = _new_webhook_secret()
    webhook = Webhook(
        id=new_id("whk"),
        project_id=project_id,
        **request.model_dump(mode="json"),
        secret=secret,
        enabled=True,
        created_at=now,
        **principal_columns("made_by", by),
    )
    session.add(webhook)
    session.flush()
    _audit_webhook(session, webhook, "create", by, now)
    return api.WebhookCreated(**_view_webhook(session, webhook).model_dump(), secret=secret)


def list_webhooks(session: Session, project_id: str, *, cursor: str | None, limit: int) -> api.Page[api.Webhook]:
    """The project's webhooks, oldest first."""
    query = select(Webhook).where(Webhook.project_id == project_id, Webhook.deleted_at.is_(None))
    if cursor:
        query = query.where(Webhook.id > decode_cursor(cursor, str)[0])
    rows = session.scalars(query.order_by(Webhook.id).limit(limit + 1)).all()
    return page_of(rows, limit, item=lambda row: _view_webhook(session, row), key=lambda row: (row.id,))


def get_webhook(session: Session, project_id: str, webhook_id: str) -> api.Webhook:
    """One webhook. Raises NotFoundError."""
    return _view_webhook(session, _require_webhook(session, project_id, webhook_id))


def change_webhook(
    session: Session, webhook: tuple[str, str], change: api.WebhookPatch, settings: Settings, *, by: PrincipalRef,
    now: int,
) -> api.Webhook:  # fmt: skip
    """Changes the webhook of a project and id; what waits is tried at once. Raises what `create_webhook` raises."""
    row = _require_webhook(session, *webhook)
    if change.name is not None and change.name != row.name:
        alerts.require_free_name(session, row.project_id, change.name)
    if change.url is not None:
        require_reachable(change.url, settings)
    given = change.model_dump(mode="json", exclude_none=True)
    for name, value in given.items():
        setattr(row, name, value or None if name == "job" else value)
    if "url" in given or given.get("enabled"):
        row.failures, row.last_error, row.last_error_at = 0, "", None
        waiting = (WebhookDelivery.webhook_id == row.id, WebhookDelivery.state == DeliveryState.WAITING)
        session.execute(update(WebhookDelivery).where(*waiting).values(due_at=now))
        announce(session, WEBHOOKS)
    session.flush()
    _audit_webhook(session, row, "change", by, now)
    return _view_webhook(session, row)


def replace_webhook_secret(
    session: Session, webhook: tuple[str, str], request: api.SecretReplace, *, by: PrincipalRef, now: int
) -> api.WebhookCreated:
    """Gives the webhook of a project and id a new secret; posts are signed with the one before too for a while.

    One that was there before that one is good no longer. Raises NotFoundError.
    """
    row = _require_webhook(session, *webhook)
    keeps = request.keep_old_s > 0
    row.old_secret = row.secret if keeps else None
    row.old_secret_until = now + int(request.keep_old_s * SECOND) if keeps else None
    row.secret = _new_webhook_secret()
    session.flush()
    _audit_webhook(session, row, "secret", by, now)
    return api.WebhookCreated(**_view_webhook(session, row).model_dump(), secret=row.secret)


def _new_webhook_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(os.urandom(_SECRET_BYTES)).decode()


def delete_webhook(session: Session, project_id: str, webhook_id: str, *, by: PrincipalRef, now: int) -> None:
    """Deletes a webhook; nothing is posted to it any more. Raises NotFoundError."""
    row = _require_webhook(session, project_id, webhook_id)
    row.deleted_at, row.secret, row.old_secret, row.enabled = now, "", None, False
    session.flush()
    _audit_webhook(session, row, "delete", by, now)


def test_webhook(
    session: Session, project_id: str, webhook_id: str, *, by: PrincipalRef, now: int
) -> api.WebhookDelivery:
    """Has a test posted once. Raises NotFoundError; InvalidRequestError for one that is switched off."""
    row = _require_webhook(session, project_id, webhook_id)
    if not row.enabled:
        raise InvalidRequestError("enabled", "the webhook is switched off", hint="Switch it on first.")
    delivery_id = alerts.record_test(session, row, now=now)
    _audit_webhook(session, row, "test", by, now)
    return _view_delivery(session.get_one(WebhookDelivery, delivery_id))


def list_deliveries(
    session: Session, project_id: str, webhook_id: str, *, cursor: str | None, limit: int
) -> api.Page[api.WebhookDelivery]:
    """Deliveries of a webhook, newest first; those that are over for a week. Raises NotFoundError."""
    row = _require_webhook(session, project_id, webhook_id)
    query = select(WebhookDelivery).where(WebhookDelivery.webhook_id == row.id)
    if cursor:
        query = query.where(WebhookDelivery.id < decode_cursor(cursor, str)[0])
    rows = session.scalars(query.order_by(WebhookDelivery.id.desc()).limit(limit + 1)).all()
    return page_of(rows, limit, item=_view_delivery, key=lambda row: (row.id,))


def _require_webhook(session: Session, project_id: str, webhook_id: str) -> Webhook:
    row = session.get(Webhook, webhook_id)
    if row is None or row.project_id != project_id or row.deleted_at is not None:
        raise NotFoundError("webhook", webhook_id)
    return row


def _audit_webhook(session: Session, webhook: Webhook, act: str, by: PrincipalRef, now: int) -> None:
    body = {"name": webhook.name, "host": urlsplit(webhook.url).hostname}  # the path may hold a secret
    history.record_audit(
        session, f"webhook.{act}", webhook.id, principal=by, project_id=webhook.project_id, now=now, body=body
    )


def _view_webhook(session: Session, row: Webhook) -> api.Webhook:
    waiting = select(WebhookDelivery.id).where(
        WebhookDelivery.webhook_id == row.id, WebhookDelivery.state == DeliveryState.WAITING
    )
    counted = session.scalar(select(func.count()).select_from(waiting.limit(_MOST_COUNTED).subquery())) or 0
    shown = ("id", "name", "url", "alerts", "job", "enabled", "created_at", "failures", "delivered_at")
    return api.Webhook.model_validate(
        {
            **{name: getattr(row, name) for name in (*shown, "last_error", "last_error_at", "old_secret_until")},
            "made_by": principal_in(row, "made_by"),
            "waiting": counted,
        }
    )


def _view_delivery(row: WebhookDelivery) -> api.WebhookDelivery:
    return api.WebhookDelivery(
        id=row.id,
        alert=row.alert,
        run=row.run_id,
        state=DeliveryState(row.state),
        tries=row.tries,
        created_at=row.created_at,
        next_try_at=max(row.due_at, row.created_at) if row.state == DeliveryState.WAITING else None,
        ended_at=row.ended_at,
        status=row.status,
        error=row.error,
        body=api.Alert.model_validate_json(row.body),
    )
