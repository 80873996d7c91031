"""Answers already given to an Idempotency-Key, kept for seven days."""

from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from drumline_server.models.base import Base


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
    answer: Mapped[dict[str, Any]]
    created_at: Mapped[int]
