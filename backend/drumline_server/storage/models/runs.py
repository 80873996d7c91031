"""What users submitted and what became of it: jobs, batches, runs, attempts and their members, events, plans."""

from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from drumline.contracts.plans import ProbeState
from drumline.contracts.states import TERMINAL_ATTEMPT, AttemptState, MemberState, RunState
from drumline_server.storage.models.base import Base, one_of


class Job(Base):
    """A name in a project."""

    __tablename__ = "job"
    __table_args__ = (UniqueConstraint("project_id", "name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str]
    latest_version: Mapped[int]
    current_version: Mapped[int]
    created_at: Mapped[int]
    created_by: Mapped[str | None]
    created_by_id: Mapped[str | None]


class JobVersion(Base):
    """What runs: never changed, identified by the hash of its content."""

    __tablename__ = "job_version"
    __table_args__ = (
        UniqueConstraint("job_id", "number"),
        UniqueConstraint("job_id", "content_hash"),
        Index("ix_job_version_bundle", "bundle"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id"))
    number: Mapped[int]
    content_hash: Mapped[str]
    bundle: Mapped[str]
    entrypoint: Mapped[str]
    strategy: Mapped[dict[str, Any]]
    record: Mapped[dict[str, Any]]
    checkpoint: Mapped[dict[str, Any]]
    defaults: Mapped[dict[str, Any] | None]
    """What its program takes for parameters that are left out; None where its bundle was gone before that was kept."""
    created_at: Mapped[int]
    created_by: Mapped[str | None]
    created_by_id: Mapped[str | None]


class JobChange(Base):
    """One move of a job's current version. Rows are only ever added."""

    __tablename__ = "job_change"

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    at: Mapped[int]
    by: Mapped[str]
    by_id: Mapped[str | None]
    cause: Mapped[str]
    from_version: Mapped[int | None]
    to_version: Mapped[int]


_CANCELLING = "cancel_requested_at IS NOT NULL AND cancelled_at IS NULL"


class Batch(Base):
    """A batch; its runs name it. What became of it is counted from its runs."""

    __tablename__ = "batch"
    __table_args__ = (
        Index("ix_batch_project_id_created_at_id", "project_id", "created_at", "id"),
        Index(
            "ix_batch_cancelling",
            "cancel_requested_at",
            "id",
            sqlite_where=text(_CANCELLING),
            postgresql_where=text(_CANCELLING),
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str]
    submitted_by: Mapped[str]
    submitted_by_id: Mapped[str | None]
    size: Mapped[int]
    """Runs that it is to have; after a cancellation no more than were queued by then."""
    jobs: Mapped[list[Any]]
    """Names of the jobs of its runs, sorted."""
    sweep: Mapped[dict[str, Any] | None]
    """The sweep as it was declared; None for a batch of single submissions."""
    created_at: Mapped[int]
    cancel_requested_at: Mapped[int | None]
    """When somebody asked all of it to stop first; a loop of the server then asks its runs, a part at a time."""
    cancel_requested_by: Mapped[str | None]
    cancel_requested_by_id: Mapped[str | None]
    cancel_grace_s: Mapped[float | None]
    cancelled_at: Mapped[int | None]
    """When each of its runs had been asked to stop or had ended."""
    deleted: Mapped[int] = mapped_column(default=0, server_default="0")
    """Runs of it that were deleted."""


_ENDED = "ended_at IS NOT NULL"
_PLANNED = "plan_id IS NOT NULL"
_ARCHIVED = "archived_at IS NOT NULL"
_DELETED = "deleted_at IS NOT NULL"
_NOTED = "note <> ''"
_LISTED = (  # noqa: SIM905 - a line for each name would fill the page
    "project_id created_at id number state reason_code job_name version_number submitted_by batch_id strategy_kind "
    "platform replicas priority attempts started_at ended_at starred_at archived_at"
).split()
"""Newest first, and beside it all that lists sort and filter by which is in the row: one narrow index is read in place
of wide rows (`storage.run_sets.RUN_COLUMNS`)."""


class Run(Base):
    """A run. `fence` grows by one per attempt; `event_seq` is the newest event's number."""

    __tablename__ = "run"
    __table_args__ = (
        one_of("state", RunState),
        Index("ix_run_list", *_LISTED),
        Index("uq_run_number", "number", unique=True),
        Index(
            "ix_run_archived", "project_id", "number", sqlite_where=text(_ARCHIVED), postgresql_where=text(_ARCHIVED)
        ),
        # With the number at their ends they answer filters and sorts of lists without the rows.
        *(
            Index(f"ix_run_project_id_{name}_created_at_id_number", "project_id", name, "created_at", "id", "number")
            for name in ("state", "submitted_by")
        ),
        Index("ix_run_job_id_created_at", "job_id", "created_at", "deleted_at"),
        Index("ix_run_version_id", "version_id", "deleted_at"),
        Index("ix_run_note", "project_id", "number", sqlite_where=text(_NOTED), postgresql_where=text(_NOTED)),
        Index("ix_run_deleted", "project_id", "number", sqlite_where=text(_DELETED), postgresql_where=text(_DELETED)),
        Index("ix_run_batch_id_batch_index", "batch_id", "batch_index"),
        Index("ix_run_plan_id", "plan_id", sqlite_where=text(_PLANNED), postgresql_where=text(_PLANNED)),
        # The queue by groups of alike runs, oldest first; not partial, as SQLite uses no partial index for a state that
        # is a bound parameter.
        Index("ix_run_queue", "state", "project_id", "priority", "shape", "created_at", "id"),
        Index("ix_run_state_queue_deadline", "state", "queue_deadline"),
        Index(
            *("ix_run_project_id_ended_at_id", "project_id", "ended_at", "id"),
            sqlite_where=text(_ENDED),
            postgresql_where=text(_ENDED),
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(default=0, server_default="0")
    """What tables of fields hold in place of the id; later runs have greater ones."""
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id"))
    job_name: Mapped[str]
    version_id: Mapped[str] = mapped_column(ForeignKey("job_version.id"))
    version_number: Mapped[int]
    submitted_by: Mapped[str]
    submitted_by_id: Mapped[str | None]
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
    note: Mapped[str] = mapped_column(default="", server_default="")
    starred_at: Mapped[int | None]
    archived_at: Mapped[int | None]
    """Since when lists leave it out unless asked."""
    deleted_at: Mapped[int | None]
    """Since when nobody sees it: what there is of it is being erased."""
    telemetry_bytes: Mapped[int | None]
    """What its telemetry takes in the database; None until it was measured, after its end."""
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
    cancel_requested_by: Mapped[str | None]
    cancel_requested_by_id: Mapped[str | None]
    cancel_grace_s: Mapped[float | None]
    stop_reason: Mapped[str | None]
    """Why the server asked the program to stop: CANCELLED, or a limit that was reached."""

    step: Mapped[int | None]
    total_steps: Mapped[int | None]
    steps_per_s: Mapped[float | None]
    examples_per_s: Mapped[float | None]
    throughput: Mapped[dict[str, Any] | None]
    """As `contracts.events.Throughput`."""
    straggler: Mapped[dict[str, Any] | None]
    """As `api.Straggler`."""
    progress_at: Mapped[int | None]
    advanced_at: Mapped[int | None]
    """When its steps last got further; None until its attempt has a step rate. `step_us`: what a step took then."""
    step_us: Mapped[int | None]
    stalled_at: Mapped[int | None]
    resume_from: Mapped[str | None]
    """The checkpoint, of whatever run, that the first attempt resumes from."""
    result: Mapped[dict[str, Any] | None]
    """`{"value": ...}` once the program returned."""
    outcomes: Mapped[dict[str, Any] | None]
    """The result's numbers by name, for tables of many runs."""
    not_finite: Mapped[dict[str, Any] | None]
    """The result's values that are NaN or infinite, by name; `None` where there are none."""
    first_non_finite: Mapped[dict[str, Any] | None]
    """The first reduction that was NaN or infinite, as `api.NonFinite`; of the newest attempt that had one."""


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


_LIVE = "state NOT IN ({})".format(", ".join(f"'{state}'" for state in sorted(TERMINAL_ATTEMPT)))


class Attempt(Base):
    """One gang placement. While it is FINISHING, `reason_code` is the end it comes to once telemetry is drained."""

    __tablename__ = "attempt"
    __table_args__ = (
        one_of("state", AttemptState),
        UniqueConstraint("run_id", "fence"),
        Index("ix_attempt_state", "state"),
        Index("uq_attempt_live_run_id", "run_id", unique=True, sqlite_where=text(_LIVE), postgresql_where=text(_LIVE)),
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
    """The checkpoint that the program resumed from."""
    resumed_step: Mapped[int | None]
    backoff_us: Mapped[int] = mapped_column(default=0, server_default="0")
    """How long the run waited after it before it was queued again."""
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
    key_hash: Mapped[str | None]
    """Of the key that it was claimed with; None for one of a worker that makes none."""
    protocol: Mapped[int | None]
    """What its worker spoke when it claimed it: what has to come with the key does not depend on what is said later."""
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
    stacks_asked_at: Mapped[int | None]
    """When somebody last asked where its process stands."""
    stacks_asked_by: Mapped[str | None]
    stacks_asked_by_id: Mapped[str | None]
    stacks_answered_at: Mapped[int | None]
    """When its host answered that; None until then."""
    standing: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    """The answer, a MemberStanding; some 100 kB that only who asks wants to read."""
    spent: Mapped[dict[str, Any] | None]
    """Microseconds by name, from the claim until `spent_until_us` after it; None until it has told any."""
    spent_until_us: Mapped[int] = mapped_column(default=0, server_default="0")
    end_waited_us: Mapped[int | None]
    """How long its worker had tried to tell its end."""
    created_at: Mapped[int]
    claimed_at: Mapped[int | None]
    started_at: Mapped[int | None]
    ended_at: Mapped[int | None]


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
    created_by_id: Mapped[str | None]
    created_at: Mapped[int]
    request: Mapped[dict[str, Any]]
    """RunSubmit, with the parameters as they were checked."""
    simulation: Mapped[dict[str, Any]]
    """`starts_now`, `why`, `devices` and `warnings` as in the API."""
    probe_state: Mapped[str]
    host_id: Mapped[str | None] = mapped_column(ForeignKey("host.id"))
    terms: Mapped[dict[str, Any] | None]
    """ProbeTerms; `without_compiler`: hosts that were asked and have none."""
    deadline: Mapped[int | None]
    fault: Mapped[str | None]
    message: Mapped[str] = mapped_column(default="")
    output: Mapped[str] = mapped_column(default="")
    program: Mapped[dict[str, Any] | None]
    """ProbedProgram."""
    ended_at: Mapped[int | None]
