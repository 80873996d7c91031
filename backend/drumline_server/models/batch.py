"""Batches: runs that were submitted together."""

from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from drumline_server.models.base import Base


class Batch(Base):
    """A batch; its runs name it. What became of it is counted from its runs."""

    __tablename__ = "batch"
    __table_args__ = (Index("ix_batch_project_id_created_at_id", "project_id", "created_at", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str]
    submitted_by: Mapped[str]
    size: Mapped[int]
    """Runs that it is to have; after a cancellation no more than were queued by then."""
    jobs: Mapped[list[Any]]
    """Names of the jobs of its runs, sorted."""
    sweep: Mapped[dict[str, Any] | None]
    """The sweep as it was declared; None for a batch of single submissions."""
    created_at: Mapped[int]
