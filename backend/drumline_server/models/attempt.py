"""Attempts and their members: one gang placement of a run, one process per host."""

from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from drumline.contracts.states import TERMINAL_ATTEMPT, AttemptState, MemberState
from drumline_server.models.base import Base, one_of

WAITING = "waiting_for_telemetry"
"""The phase of a member whose program is made to wait until its telemetry is taken."""
_LIVE = "state NOT IN ({})".format(", ".join(f"'{state}'" for state in sorted(TERMINAL_ATTEMPT)))


class Attempt(Base):
    """One gang placement. While it is FINISHING, `reason_code` is the end it comes to once telemetry is drained."""

    __tablename__ = "attempt"
    __table_args__ = (
        one_of("state", AttemptState),
        UniqueConstraint("run_id", "fence"),
        Index("ix_attempt_state", "state"),
        Index(
            "uq_attempt_live_run_id",
            "run_id",
            unique=True,
            sqlite_where=text(_LIVE),
            postgresql_where=text(_LIVE),
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    number: Mapped[int]
    fence: Mapped[int]
    state: Mapped[str]
    reason_code: Mapped[str | None]
    reason_message: Mapped[str] = mapped_column(default="")
    resumed_from: Mapped[str | None]
    """The checkpoint that the program went on from."""
    resumed_step: Mapped[int | None]
    created_at: Mapped[int]
    claim_deadline: Mapped[int]
    coordinator: Mapped[str | None]
    """Where the members of a gang meet, `host:port`; set by the claim of rank 0."""
    claimed_at: Mapped[int | None]
    started_at: Mapped[int | None]
    finishing_at: Mapped[int | None]
    ended_at: Mapped[int | None]


class Member(Base):
    """One process of an attempt on one host. `last_seq` is set by its end; it is drained at `acked_seq >= last_seq`."""

    __tablename__ = "member"
    __table_args__ = (
        one_of("state", MemberState),
        UniqueConstraint("attempt_id", "rank"),
        Index("ix_member_host_id_state", "host_id", "state"),
        Index("ix_member_host_id_ended_at", "host_id", "ended_at"),
        Index("ix_member_run_id", "run_id"),
        Index("ix_member_reason_code_ended_at", "reason_code", "ended_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempt.id"))
    host_id: Mapped[str] = mapped_column(ForeignKey("host.id"))
    incarnation_id: Mapped[str | None]
    rank: Mapped[int]
    fence: Mapped[int]
    state: Mapped[str]
    phase: Mapped[str] = mapped_column(default="")
    pid: Mapped[int | None]
    exit_code: Mapped[int | None]
    signal: Mapped[int | None]
    reason_code: Mapped[str | None]
    reason_message: Mapped[str] = mapped_column(default="")
    acked_seq: Mapped[int] = mapped_column(default=0)
    last_seq: Mapped[int | None]
    step: Mapped[int | None]
    last_collective: Mapped[str | None]
    tick: Mapped[dict[str, Any] | None]
    """The newest MemberTick."""
    log_bytes: Mapped[int] = mapped_column(default=0)
    """End of the stored output, in bytes of the member's output."""
    log_lines: Mapped[int] = mapped_column(default=0)
    output_bytes: Mapped[int | None]
    """How much the program has written in all, told by its end."""
    logged_step: Mapped[int | None]
    """Of the newest metric that is stored, as is its time."""
    logged_at: Mapped[int | None]
    open_gaps: Mapped[int] = mapped_column(default=0, server_default="0")
    """Gaps in its metrics after which none has come yet."""
    unsent_bytes: Mapped[int | None]
    """What its host still has to send, told once the program has ended."""
    telemetry_at: Mapped[int | None]
    """When telemetry of it last came, or its host told that there is more."""
    created_at: Mapped[int]
    claimed_at: Mapped[int | None]
    started_at: Mapped[int | None]
    ended_at: Mapped[int | None]
