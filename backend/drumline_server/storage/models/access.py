"""Of a project: who may act, and what they did: tokens, sessions, the audit trail; whom alerts are posted to;
programs; and how its people work on many runs: fields that lists sort by and show, views, bulk changes. And what
servers keep for themselves.
"""

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from drumline.contracts.api import BulkState, DeliveryState
from drumline_server.storage.models.base import Base, one_of

OF_DELETED = "action = 'run.delete'"
"""That an act is the deletion of a run: its entry is what is left of the run."""
ROLES = ("viewer", "submitter", "operator", "admin", "worker")
_EXACT_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
"""Compared by code points, on both databases alike."""


class Project(Base):
    """The border of visibility: everything belongs to one project."""

    __tablename__ = "project"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[int]
    retention_days: Mapped[int | None]
    """Runs that ended longer ago are deleted, unless they are starred; None for never."""
    retention_bytes: Mapped[int | None]
    """Of telemetry of ended runs; beyond it the oldest are deleted."""


class Token(Base):
    """A bearer token, known by the hash of its secret. `host_id` is set on a worker's token."""

    __tablename__ = "token"
    __table_args__ = (
        one_of("kind", ("pat", "enr", "wrk")),
        one_of("role", ROLES),
        Index("ix_token_project_id_created_at", "project_id", "created_at"),
        Index("ix_token_made_by", "made_by"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    kind: Mapped[str]
    role: Mapped[str]
    name: Mapped[str]
    secret_hash: Mapped[str] = mapped_column(unique=True)
    last4: Mapped[str]
    host_id: Mapped[str | None] = mapped_column(ForeignKey("host.id"))
    created_at: Mapped[int]
    expires_at: Mapped[int]
    last_used_at: Mapped[int | None]
    used_at: Mapped[int | None]
    """When a single-use enrolment token was spent."""
    revoked_at: Mapped[int | None]
    made_by: Mapped[str | None]
    """The token that made this one, itself or through a session; `None` for one that the server made."""
    created_by: Mapped[str | None]
    created_by_id: Mapped[str | None]
    revoked_by: Mapped[str | None]
    revoked_by_id: Mapped[str | None]


class BrowserSession(Base):
    """A signed-in browser, known by the hash of its cookie."""

    __tablename__ = "session"
    __table_args__ = (one_of("role", ROLES[:-1]), Index("ix_session_token_id", "token_id"))

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    cookie_hash: Mapped[str] = mapped_column(unique=True)
    principal: Mapped[str]
    role: Mapped[str]
    token_id: Mapped[str | None] = mapped_column(ForeignKey("token.id"))
    created_at: Mapped[int]
    last_used_at: Mapped[int]
    expires_at: Mapped[int]
    revoked_at: Mapped[int | None]


class LoginCode(Base):
    """A one-time code that opens a browser session, known by its hash."""

    __tablename__ = "login_code"
    __table_args__ = (one_of("role", ROLES[:-1]), Index("ix_login_code_token_id", "token_id"))

    code_hash: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    role: Mapped[str]
    token_id: Mapped[str | None] = mapped_column(ForeignKey("token.id"))
    created_at: Mapped[int]
    expires_at: Mapped[int]
    used_at: Mapped[int | None]


class Audit(Base):
    """One act of a principal. Rows are only ever added."""

    __tablename__ = "audit"
    __table_args__ = (
        Index("ix_audit_project_id_at", "project_id", "at"),
        Index("ix_audit_deleted_run", "target", sqlite_where=text(OF_DELETED), postgresql_where=text(OF_DELETED)),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str | None] = mapped_column(ForeignKey("project.id"))
    at: Mapped[int]
    principal: Mapped[str]
    principal_id: Mapped[str | None]
    action: Mapped[str]
    target: Mapped[str]
    client: Mapped[str]
    body: Mapped[dict[str, Any]]


class IdempotencyKey(Base):
    """The first answer to a principal's key: replayed for the same body, refused for another."""

    __tablename__ = "idempotency_key"
    __table_args__ = (Index("ix_idempotency_key_created_at", "created_at"),)

    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"), primary_key=True)
    principal: Mapped[str] = mapped_column(primary_key=True)
    """Id of the token or session that sent it: nobody meets the keys of others."""
    route: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    body_hash: Mapped[str]
    status: Mapped[int]
    response: Mapped[dict[str, Any]]
    created_at: Mapped[int]


class Lease(Base):
    """A duty of one server at a time. `fence` grows with each new holder; there is a row from the beginning."""

    __tablename__ = "lease"

    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str] = mapped_column(default="")
    fence: Mapped[int] = mapped_column(default=0)
    expires_at: Mapped[int] = mapped_column(default=0)
    """On the clock of the database."""


class ServerProcess(Base):
    """A server that serves from this database. Times are on the clock of the database."""

    __tablename__ = "server_process"

    id: Mapped[str] = mapped_column(primary_key=True)
    process: Mapped[str]
    """The machine and the process id, empty before the colon where nobody can tell."""
    seen_at: Mapped[int]
    """When it last said that it is there."""
    stalled_us: Mapped[int]
    """For how long it stood still lately."""


class Store(Base):
    """A directory of files beside the database. It holds the same identity, so that another one is told from it."""

    __tablename__ = "store"

    name: Mapped[str] = mapped_column(primary_key=True)
    identity: Mapped[str]
    created_at: Mapped[int]


_UNNAMED = "unnamed_since IS NOT NULL"


class Bundle(Base):
    """A program of a project; the bytes are in the blob store."""

    __tablename__ = "bundle"
    __table_args__ = (
        Index("ix_bundle_sha256", "sha256"),
        Index("ix_bundle_unnamed", "unnamed_since", sqlite_where=text(_UNNAMED), postgresql_where=text(_UNNAMED)),
    )

    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"), primary_key=True)
    sha256: Mapped[str] = mapped_column(primary_key=True)
    size_bytes: Mapped[int]
    files: Mapped[int]
    entrypoints: Mapped[list[Any]]
    created_at: Mapped[int]
    created_by: Mapped[str | None]
    created_by_id: Mapped[str | None]
    location: Mapped[str | None]
    """Where the bytes are; None where an older server stored them: there it follows from the digest."""
    unnamed_since: Mapped[int | None]
    """When it was first seen, or last asked for, while nothing named it; None while something does."""


class Webhook(Base):
    """An address that alerts of a project's runs are posted to."""

    __tablename__ = "webhook"
    __table_args__ = (Index("ix_webhook_project_id_id", "project_id", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str]
    url: Mapped[str]
    secret: Mapped[str]
    """In the clear: each post is signed with it."""
    old_secret: Mapped[str | None]
    """The one before, with which posts are signed too until `old_secret_until`."""
    old_secret_until: Mapped[int | None]
    alerts: Mapped[list[Any]]
    """Of which kinds it wants to hear."""
    job: Mapped[str | None]
    """Of which job's runs; None for all."""
    enabled: Mapped[bool]
    created_at: Mapped[int]
    made_by: Mapped[str | None]
    made_by_id: Mapped[str | None]
    failures: Mapped[int] = mapped_column(default=0)
    """Tries that failed since one was taken."""
    delivered_at: Mapped[int | None]
    last_error: Mapped[str] = mapped_column(default="")
    last_error_at: Mapped[int | None]
    deleted_at: Mapped[int | None]
    """Gone for everybody; its rows are deleted a part at a time."""


_WAITING = "state = 'waiting'"


class WebhookDelivery(Base):
    """One alert to one webhook, stored with what it tells of. A run may be deleted and its deliveries stay."""

    __tablename__ = "webhook_delivery"
    __table_args__ = (
        one_of("state", DeliveryState),
        UniqueConstraint("webhook_id", "cause"),
        Index("ix_webhook_delivery_webhook_id_id", "webhook_id", "id"),
        Index(
            "ix_webhook_delivery_due",
            "webhook_id",
            "due_at",
            "id",
            sqlite_where=text(_WAITING),
            postgresql_where=text(_WAITING),
        ),
        Index("ix_webhook_delivery_ended_at", "ended_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhook.id"))
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str | None]
    cause: Mapped[str]
    """What it tells of: a webhook is told of it once."""
    alert: Mapped[str]
    body: Mapped[str]
    """JSON of `api.Alert`, the same bytes in each try."""
    state: Mapped[str]
    tries: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[int]
    due_at: Mapped[int]
    """When it is tried next, while it waits."""
    ended_at: Mapped[int | None]
    status: Mapped[int | None]
    error: Mapped[str] = mapped_column(default="")


class Field(Base):
    """A name that runs of a project have values of, such as `params.lr`."""

    __tablename__ = "field"
    __table_args__ = (UniqueConstraint("project_id", "name"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer(), "sqlite"), primary_key=True)
    """Never used again: rows of values hold it in place of the name."""
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str] = mapped_column(_EXACT_TEXT)


class RunField(Base):
    """What one run has under one name: a number, NaN or a text, as `storage.fields.FieldValue` writes it."""

    __tablename__ = "run_field"
    __table_args__ = (
        Index("ix_run_field_value", "field_id", "kind", "number", "text", "run"),
        {"sqlite_with_rowid": False},
    )

    run: Mapped[int] = mapped_column(ForeignKey("run.number"), primary_key=True, autoincrement=False)
    field_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("field.id"), primary_key=True)
    kind: Mapped[int]
    number: Mapped[float]
    text: Mapped[str] = mapped_column(_EXACT_TEXT)


_DUE = "due_at IS NOT NULL"


class RunFigures(Base):
    """Last, least and greatest value of each metric of a run, taken in by ingest in one small row.

    They become fields when they are due: many batches of values then cost the indexed table one write.
    """

    __tablename__ = "run_figures"
    __table_args__ = (
        Index("ix_run_figures_due_at", "due_at", "run", sqlite_where=text(_DUE), postgresql_where=text(_DUE)),
    )

    run: Mapped[int] = mapped_column(ForeignKey("run.number"), primary_key=True, autoincrement=False)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    figures: Mapped[dict[str, Any]]
    """By name: last, least, greatest, and the fence and step of the last."""
    due_at: Mapped[int | None]
    """When they are to become fields; None once they are."""


class RunView(Base):
    """A saved view of the list of runs, by its name."""

    __tablename__ = "run_view"
    __table_args__ = (UniqueConstraint("project_id", "name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str] = mapped_column(_EXACT_TEXT)
    view: Mapped[dict[str, Any]]
    """RunListView."""
    made_by: Mapped[str | None]
    made_by_id: Mapped[str | None]
    created_at: Mapped[int]


_OPEN = "ended_at IS NULL"


class BulkChange(Base):
    """A change of many runs, asked for by one request and done by a loop of the server, a part at a time."""

    __tablename__ = "bulk_change"
    __table_args__ = (
        one_of("state", BulkState),
        Index("ix_bulk_change_open", "created_at", "id", sqlite_where=text(_OPEN), postgresql_where=text(_OPEN)),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    change: Mapped[dict[str, Any]]
    """BulkAction."""
    asked_by: Mapped[str | None]
    asked_by_id: Mapped[str | None]
    state: Mapped[str]
    runs: Mapped[bytes]
    """Numbers of the runs, little-endian int64, as they matched when it was asked for."""
    total: Mapped[int]
    done: Mapped[int] = mapped_column(default=0)
    """How many of them it has looked at, in their order: where it continues after a restart."""
    changed: Mapped[int] = mapped_column(default=0)
    refused: Mapped[list[Any] | None]
    """The first runs that could not be deleted, as `api.Refusal`."""
    created_at: Mapped[int]
    ended_at: Mapped[int | None]


class RunLabel(Base):
    """One label of a run, for filtering lists by index."""

    __tablename__ = "run_label"
    __table_args__ = (Index("ix_run_label_project_id_key_value", "project_id", "key", "value", "run_id"),)

    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
