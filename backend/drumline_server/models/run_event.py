"""What happened to runs, in order."""

from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from drumline_server.models.base import Base


class RunEvent(Base):
    """One event. `seq` is taken under the run row's lock, so it never shows out of order."""

    __tablename__ = "run_event"

    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    at: Mapped[int]
    kind: Mapped[str]
    attempt_id: Mapped[str | None]
    body: Mapped[dict[str, Any]]
