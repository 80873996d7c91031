"""Runs: what users submitted."""

from typing import Any

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from drumline.contracts.states import RunState
from drumline_server.models.base import Base, one_of

_PLANNED = "plan_id IS NOT NULL"


class Run(Base):
    """A run. `fence` grows by one per attempt; `event_seq` is the newest event's number."""

    __tablename__ = "run"
    __table_args__ = (
        one_of("state", RunState),
        Index("ix_run_project_id_created_at_id", "project_id", "created_at", "id"),
        Index("ix_run_project_id_state_created_at_id", "project_id", "state", "created_at", "id"),
        Index("ix_run_job_id_created_at", "job_id", "created_at"),
        Index("ix_run_version_id", "version_id"),
        Index("ix_run_batch_id_batch_index", "batch_id", "batch_index"),
        Index("ix_run_plan_id", "plan_id", sqlite_where=text(_PLANNED), postgresql_where=text(_PLANNED)),
        # The queue by groups of alike runs, oldest first; not partial, as SQLite uses no partial index for a state that
        # is a bound parameter.
        Index("ix_run_queue", "state", "project_id", "priority", "shape", "created_at", "id"),
        Index("ix_run_state_queue_deadline", "state", "queue_deadline"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id"))
    job_name: Mapped[str]
    version_id: Mapped[str] = mapped_column(ForeignKey("job_version.id"))
    version_number: Mapped[int]
    submitted_by: Mapped[str]
    rerun_of: Mapped[str | None]
    batch_id: Mapped[str | None]
    batch_index: Mapped[int | None]
    """The run's place in its batch, from 0."""

    state: Mapped[str]
    fence: Mapped[int] = mapped_column(default=0)
    event_seq: Mapped[int] = mapped_column(default=0)
    reason_code: Mapped[str | None]
    reason_message: Mapped[str] = mapped_column(default="")
    attempt_id: Mapped[str | None]
    """The newest attempt."""
    attempts: Mapped[int] = mapped_column(default=0)
    """Attempts that began: all their members were claimed."""
    user_failures: Mapped[int] = mapped_column(default=0)
    infrastructure_failures: Mapped[int] = mapped_column(default=0)
    hosts: Mapped[list[Any]]
    """Names of the newest attempt's hosts, by rank."""

    strategy_kind: Mapped[str]
    replicas: Mapped[int]
    platform: Mapped[str]
    spread: Mapped[str]
    shape: Mapped[str]
    """The room that it needs, as `scheduler.shapes.Shape` writes it: runs of one shape are alike to the scheduler."""
    priority: Mapped[int]
    parameters: Mapped[dict[str, Any]]
    limits: Mapped[dict[str, Any]]
    retries: Mapped[dict[str, Any]]
    labels: Mapped[dict[str, Any]]
    wait_for_devices: Mapped[bool]
    plan_id: Mapped[str | None]
    """The plan that it was submitted from."""

    created_at: Mapped[int]
    queue_deadline: Mapped[int | None]
    retry_at: Mapped[int | None]
    """End of the backoff, in RETRY_WAIT."""
    started_at: Mapped[int | None]
    ended_at: Mapped[int | None]
    cancel_requested_at: Mapped[int | None]
    cancel_grace_s: Mapped[float | None]
    stop_reason: Mapped[str | None]
    """Why the server asked the program to stop: CANCELLED, or a limit that was reached."""

    step: Mapped[int | None]
    total_steps: Mapped[int | None]
    steps_per_s: Mapped[float | None]
    examples_per_s: Mapped[float | None]
    progress_at: Mapped[int | None]
    resume_from: Mapped[str | None]
    """The checkpoint, of whatever run, that the first attempt goes on from."""
    result: Mapped[dict[str, Any] | None]
    """`{"value": ...}` once the program returned."""
    outcomes: Mapped[dict[str, Any] | None]
    """The result's numbers by name, for tables of many runs."""
    not_finite: Mapped[dict[str, Any] | None]
    """The result's values that are NaN or infinite, by name; `None` where there are none."""


class RunLabel(Base):
    """One label of a run, for filtering lists by index."""

    __tablename__ = "run_label"
    __table_args__ = (Index("ix_run_label_project_id_key_value", "project_id", "key", "value", "run_id"),)

    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
