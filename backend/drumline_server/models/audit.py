"""The audit trail: who did what to what."""

from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from drumline_server.models.base import Base


class Audit(Base):
    """One act of a principal. Rows are only ever added."""

    __tablename__ = "audit"
    __table_args__ = (Index("ix_audit_project_id_at", "project_id", "at"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str | None] = mapped_column(ForeignKey("project.id"))
    at: Mapped[int]
    principal: Mapped[str]
    action: Mapped[str]
    target: Mapped[str]
    client: Mapped[str]
    body: Mapped[dict[str, Any]]
