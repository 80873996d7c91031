"""Plans: what was asked, what the scheduler would do, what a worker's probe found."""

from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from drumline.contracts.plans import ProbeState
from drumline_server.models.base import Base, one_of


class Plan(Base):
    """A plan. Its probe is ordered once, from `host_id`, and is over by `deadline`."""

    __tablename__ = "plan"
    __table_args__ = (
        one_of("probe_state", ProbeState),
        Index("ix_plan_host_id_probe_state", "host_id", "probe_state"),
        Index("ix_plan_created_at", "created_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    created_by: Mapped[str]
    created_at: Mapped[int]
    request: Mapped[dict[str, Any]]
    """RunSubmit, with the parameters as they were checked."""
    foreseen: Mapped[dict[str, Any]]
    """`starts_now`, `why`, `devices` and `warnings` as in the API."""
    probe_state: Mapped[str]
    host_id: Mapped[str | None] = mapped_column(ForeignKey("host.id"))
    terms: Mapped[dict[str, Any] | None]
    """ProbeTerms."""
    deadline: Mapped[int | None]
    fault: Mapped[str | None]
    message: Mapped[str] = mapped_column(default="")
    output: Mapped[str] = mapped_column(default="")
    program: Mapped[dict[str, Any] | None]
    """ProbedProgram."""
    ended_at: Mapped[int | None]
