"""Projects and who may act in them: tokens, browser sessions, one-time login codes."""

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from drumline_server.models.base import Base, one_of

ROLES = ("viewer", "submitter", "operator", "admin", "worker")


class Project(Base):
    """The border of visibility: everything belongs to one project."""

    __tablename__ = "project"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[int]


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
