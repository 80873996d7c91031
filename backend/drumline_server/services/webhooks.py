"""Webhooks of a project: made, listed, changed, deleted and tested; and what became of their deliveries."""

import base64
import os
from ipaddress import ip_address
from urllib.parse import urlsplit

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.api import DeliveryState, PrincipalRef
from drumline.contracts.ids import new_id
from drumline_server.base.callers import decode_cursor, page_of
from drumline_server.base.errors import CapError, InvalidRequestError, NotFoundError
from drumline_server.base.settings import Settings
from drumline_server.lifecycle import alerts
from drumline_server.scheduling.webhooks import SECRET_PREFIX, why_refused
from drumline_server.storage import history
from drumline_server.storage.models import Webhook, WebhookDelivery, principal_columns, principal_in
from drumline_server.storage.notifications import WEBHOOKS, announce

_SECRET_BYTES = 32
_MOST_COUNTED = 1_000


def create_webhook(
    session: Session, project_id: str, request: api.WebhookCreate, settings: Settings, *, by: PrincipalRef, now: int
) -> api.WebhookCreated:
    """Makes a webhook; its secret is in the answer and never shown again.

    Raises InvalidRequestError for an address that could never be posted to, CapError for too many webhooks.
    """
    _require_reachable(request.url, settings)
    of_project = (Webhook.project_id == project_id, Webhook.deleted_at.is_(None))
    there = session.scalar(select(func.count()).select_from(Webhook).where(*of_project)) or 0
    if there >= settings.webhooks_per_project:
        raise CapError(
            f"The project has {there} webhooks",
            settings.webhooks_per_project,
            "DRUMLINE_WEBHOOKS_PER_PROJECT",
            hint="Delete one that is not needed any more.",
        )
    secret = SECRET_PREFIX + base64.b64encode(os.urandom(_SECRET_BYTES)).decode()
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
    _audit(session, webhook, "create", by, now)
    return api.WebhookCreated(**_view(session, webhook).model_dump(), secret=secret)


def list_webhooks(session: Session, project_id: str, *, cursor: str | None, limit: int) -> api.Page[api.Webhook]:
    """The project's webhooks, oldest first."""
    query = select(Webhook).where(Webhook.project_id == project_id, Webhook.deleted_at.is_(None))
    if cursor:
        query = query.where(Webhook.id > decode_cursor(cursor, str)[0])
    rows = session.scalars(query.order_by(Webhook.id).limit(limit + 1)).all()
    return page_of(rows, limit, item=lambda row: _view(session, row), key=lambda row: (row.id,))


def get_webhook(session: Session, project_id: str, webhook_id: str) -> api.Webhook:
    """One webhook. Raises NotFoundError."""
    return _view(session, _require(session, project_id, webhook_id))


def change_webhook(
    session: Session, webhook: tuple[str, str], change: api.WebhookPatch, settings: Settings, *, by: PrincipalRef,
    now: int,
) -> api.Webhook:  # fmt: skip
    """Changes the webhook of a project and id; what waits for it is tried at once. Raises NotFoundError,
    InvalidRequestError.
    """
    row = _require(session, *webhook)
    if change.url is not None:
        _require_reachable(change.url, settings)
    given = change.model_dump(mode="json", exclude_none=True)
    for name, value in given.items():
        setattr(row, name, value or None if name == "job" else value)
    if "url" in given or given.get("enabled"):
        row.failures, row.last_error, row.last_error_at = 0, "", None
        waiting = (WebhookDelivery.webhook_id == row.id, WebhookDelivery.state == DeliveryState.WAITING)
        session.execute(update(WebhookDelivery).where(*waiting).values(due_at=now))
        announce(session, WEBHOOKS)
    session.flush()
    _audit(session, row, "change", by, now)
    return _view(session, row)


def delete_webhook(session: Session, project_id: str, webhook_id: str, *, by: PrincipalRef, now: int) -> None:
    """Deletes a webhook; nothing is posted to it any more. Raises NotFoundError."""
    row = _require(session, project_id, webhook_id)
    row.deleted_at, row.secret, row.enabled = now, "", False
    session.flush()
    _audit(session, row, "delete", by, now)


def test_webhook(
    session: Session, project_id: str, webhook_id: str, *, by: PrincipalRef, now: int
) -> api.WebhookDelivery:
    """Has a test posted once. Raises NotFoundError; InvalidRequestError for one that is switched off."""
    row = _require(session, project_id, webhook_id)
    if not row.enabled:
        raise InvalidRequestError("enabled", "the webhook is switched off", hint="Switch it on first.")
    delivery_id = alerts.record_test(session, row, now=now)
    _audit(session, row, "test", by, now)
    return _view_delivery(session.get_one(WebhookDelivery, delivery_id))


def list_deliveries(
    session: Session, project_id: str, webhook_id: str, *, cursor: str | None, limit: int
) -> api.Page[api.WebhookDelivery]:
    """Deliveries of a webhook, newest first; those that are over for a week. Raises NotFoundError."""
    row = _require(session, project_id, webhook_id)
    query = select(WebhookDelivery).where(WebhookDelivery.webhook_id == row.id)
    if cursor:
        query = query.where(WebhookDelivery.id < decode_cursor(cursor, str)[0])
    rows = session.scalars(query.order_by(WebhookDelivery.id.desc()).limit(limit + 1)).all()
    return page_of(rows, limit, item=_view_delivery, key=lambda row: (row.id,))


def _require(session: Session, project_id: str, webhook_id: str) -> Webhook:
    row = session.get(Webhook, webhook_id)
    if row is None or row.project_id != project_id or row.deleted_at is not None:
        raise NotFoundError("webhook", webhook_id)
    return row


def _require_reachable(url: str, settings: Settings) -> None:
    """Names are looked up with each post only; an address in digits can be judged at once."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not settings.webhook_http:
        raise InvalidRequestError(
            "url", "begins with http://", hint="Use https://, or have an operator set DRUMLINE_WEBHOOK_HTTP=1."
        )
    try:
        address = str(ip_address(parts.hostname or ""))
    except ValueError:
        return
    if kind := why_refused(address, settings.webhook_networks):
        raise InvalidRequestError(
            "url", f"{address} is {kind}", hint="An operator can allow it with DRUMLINE_WEBHOOK_NETWORKS."
        )


def _audit(session: Session, webhook: Webhook, act: str, by: PrincipalRef, now: int) -> None:
    body = {"name": webhook.name, "host": urlsplit(webhook.url).hostname}  # the path may hold a secret
    history.record_audit(
        session, f"webhook.{act}", webhook.id, principal=by, project_id=webhook.project_id, now=now, body=body
    )


def _view(session: Session, row: Webhook) -> api.Webhook:
    waiting = select(WebhookDelivery.id).where(
        WebhookDelivery.webhook_id == row.id, WebhookDelivery.state == DeliveryState.WAITING
    )
    counted = session.scalar(select(func.count()).select_from(waiting.limit(_MOST_COUNTED).subquery())) or 0
    shown = ("id", "name", "url", "alerts", "job", "enabled", "created_at", "failures", "delivered_at")
    return api.Webhook.model_validate(
        {
            **{name: getattr(row, name) for name in (*shown, "last_error", "last_error_at")},
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
