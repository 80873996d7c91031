"""Doorbells still to be rung."""

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from drumline_server.models.base import Base, one_of


class Outbox(Base):
    """News for one member's host. It is rung again until it is settled."""

    __tablename__ = "outbox"
    __table_args__ = (
        one_of("kind", ("claim", "cancel")),
        Index(
            "ix_outbox_open",
            "rung_at",
            sqlite_where=text("settled_at IS NULL"),
            postgresql_where=text("settled_at IS NULL"),
        ),
        Index("ix_outbox_member_id", "member_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    kind: Mapped[str]
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempt.id"))
    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"))
    host_id: Mapped[str] = mapped_column(ForeignKey("host.id"))
    fence: Mapped[int]
    created_at: Mapped[int]
    rung_at: Mapped[int | None]
    rings: Mapped[int] = mapped_column(default=0)
    settled_at: Mapped[int | None]
    """When the member claimed, ended or was fenced off."""
