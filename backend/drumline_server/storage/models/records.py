"""What members reported: columns of metrics, chunks of output, reductions, artifacts, placement.

A row is bound to its member, which is bound to attempt and run. Where it names these too, that is a foreign key only if
an index begins with it: without one, the deletion of a run would look through the whole table for each of its attempts.
"""

from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from drumline.contracts.states import ArtifactState
from drumline_server.storage.models.base import Base, indexes_of_moved, one_of


class Metric(Base):
    """One metric of one member: how much of it there is, and its newest values, too few for a chunk.

    Columns of values are little-endian: int64 steps and times (microseconds), float64 points.
    """

    __tablename__ = "metric"
    __table_args__ = (Index("ix_metric_run_id_name", "run_id", "name"),)

    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    attempt_id: Mapped[str]
    n: Mapped[int]
    """How many values were logged, those in chunks included."""
    first_step: Mapped[int]
    last_step: Mapped[int]
    steps: Mapped[bytes]
    times: Mapped[bytes]
    points: Mapped[bytes]


class MetricChunk(Base):
    """So many values of a metric as every chunk has, in the order of logging; columns as those of `Metric`."""

    __tablename__ = "metric_chunk"

    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    """Counts the chunks of the metric from 0."""
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    steps: Mapped[bytes]
    times: Mapped[bytes]
    points: Mapped[bytes]


class MetricPage(Base):
    """What stands in so many chunks of a metric as every page has: a column for each figure, a place for each chunk."""

    __tablename__ = "metric_page"

    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    """Counts the pages of the metric from 0."""
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    first_step: Mapped[int]
    last_step: Mapped[int]
    first_steps: Mapped[bytes]
    last_steps: Mapped[bytes]
    last_values_by_step: Mapped[bytes]
    """The last value of each chunk by step, float64."""
    first_times: Mapped[bytes]
    last_times: Mapped[bytes]
    last_values_by_time: Mapped[bytes]
    """The last value of each chunk by time, float64."""
    finite: Mapped[bytes]
    """How many values are neither NaN nor infinite, int64; the figures after it are of those, float64."""
    minima: Mapped[bytes]
    maxima: Mapped[bytes]
    sums: Mapped[bytes]


class Gap(Base):
    """Telemetry of one member that is lost, and where it stood. A size or count of NULL is unknown."""

    __tablename__ = "gap"
    __table_args__ = (Index("ix_gap_run_id_id", "run_id", "id"), Index("ix_gap_member_id", "member_id"))

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    attempt_id: Mapped[str]
    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"))
    what: Mapped[str]
    count: Mapped[int | None]
    size_bytes: Mapped[int | None]
    detail: Mapped[str]
    first_byte: Mapped[int | None]
    """Where it stands in the output, if output is lost; its chunk tells it there."""
    next_byte: Mapped[int | None]
    after_step: Mapped[int | None]
    """The last metric before it, and its time."""
    after_at: Mapped[int | None]
    before_step: Mapped[int | None]
    """The first metric after it, and its time; NULL until there is one."""
    before_at: Mapped[int | None]
    recorded_at: Mapped[int]


class LogChunk(Base):
    """A stretch of one member's output in one stream; `content` is UTF-8, `first_line` counts from 1.

    A chunk of the stream `gap` says in words what is lost of the bytes between which it stands.
    """

    __tablename__ = "log_chunk"
    __table_args__ = (Index("ix_log_chunk_run_id", "run_id"),)

    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"), primary_key=True)
    first_byte: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    attempt_id: Mapped[str]
    stream: Mapped[str]
    at: Mapped[int]
    next_byte: Mapped[int]
    first_line: Mapped[int]
    newlines: Mapped[int]
    content: Mapped[bytes]


class Reduction(Base):
    """One recorded reduction. `body` is the contract's event without what stands in columns."""

    __tablename__ = "reduction"
    __table_args__ = (
        UniqueConstraint("member_id", "seq"),
        Index("ix_reduction_run_id_step_id", "run_id", "step", "id"),
        Index("ix_reduction_run_id_name_step", "run_id", "name", "step", "id"),
        Index("ix_reduction_member_id_kind_level_step", "member_id", "kind", "level", "step"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    attempt_id: Mapped[str]
    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"))
    seq: Mapped[int]
    kind: Mapped[int]
    level: Mapped[int]
    """How often 2 divides its place among those of its kind: those of `level` k and above are every 2**k-th."""
    name: Mapped[str]
    step: Mapped[int]
    call: Mapped[int | None]
    """`None` in rows from before it was told: their `step` is the call."""
    op: Mapped[str]
    axis: Mapped[dict[str, Any]]
    """`{"axis": null | int | [int, ...]}`."""
    origin: Mapped[str]
    replicas: Mapped[int]
    ragged: Mapped[bool]
    body: Mapped[dict[str, Any]]
    """`inputs`, `counts`, `denominator`, `result` as in `events.ReductionEvent`."""
    recorded_at: Mapped[int]
    whole_bytes: Mapped[int | None]
    whole_total_bytes: Mapped[int | None]
    """Of the member up to this row; NULL in rows from before any were kept, as `whole_bytes` where `whole` is."""
    whole: Mapped[bytes | None] = mapped_column(deferred=True)  # every element, as `arrays.unpack_arrays` reads them


class ReductionKind(Base):
    """Reductions of one member that are alike, counted."""

    __tablename__ = "reduction_kind"
    __table_args__ = (Index("ix_reduction_kind_run_id", "run_id"),)

    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"), primary_key=True)
    kind: Mapped[int] = mapped_column(primary_key=True)
    """A hash of what they have in common."""
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    attempt_id: Mapped[str]
    name: Mapped[str]
    op: Mapped[str]
    axis: Mapped[dict[str, Any]]
    origin: Mapped[str]
    ragged: Mapped[bool]
    recorded: Mapped[int]
    first_step: Mapped[int]
    last_step: Mapped[int]


class Media(Base):
    """A histogram, image, text or table that a program logged. `content` is a PNG, or compressed JSON of the others."""

    __tablename__ = "media"
    __table_args__ = (
        UniqueConstraint("member_id", "seq"),
        Index("ix_media_run_id_name_kind_step", "run_id", "name", "kind", "attempt_id", "step", "id"),
        *indexes_of_moved("media", "content"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    attempt_id: Mapped[str]
    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"))
    seq: Mapped[int]
    nth: Mapped[int]
    """Its place among all that its member logged, from 1; `total_bytes`: of the content up to it."""
    total_bytes: Mapped[int]
    kind: Mapped[str]
    name: Mapped[str]
    step: Mapped[int]
    rank: Mapped[int]
    """Its member's."""
    size_bytes: Mapped[int]
    """Of the content as it is stored."""
    width: Mapped[int | None]
    """Of an image, in pixels."""
    height: Mapped[int | None]
    logged_at: Mapped[int]
    """By its host's clock."""
    content: Mapped[bytes] = mapped_column(deferred=True)
    """Empty once it is in the store. No kind has an empty one; to allow NULL, SQLite would rewrite the table."""
    sha256: Mapped[str | None]
    """Of a content in the store, as `location`; NULL where the row holds it."""
    location: Mapped[str | None]


class Profile(Base):
    """A traced call of `strategy.run`. Times are means over the devices of its process, NULL where none are known."""

    __tablename__ = "profile"
    __table_args__ = (
        UniqueConstraint("member_id", "seq"),
        Index("ix_profile_run_id_step", "run_id", "step", "id"),
        *indexes_of_moved("profile", "file"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    attempt_id: Mapped[str]
    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"))
    seq: Mapped[int]
    nth: Mapped[int]
    """As of `Media`, and `total_bytes`, of contents and files."""
    total_bytes: Mapped[int]
    rank: Mapped[int]
    step: Mapped[int]
    call: Mapped[int]
    steps: Mapped[int]
    span_ns: Mapped[int]
    devices: Mapped[int]
    """How many."""
    computing_ns: Mapped[int | None]
    collective_ns: Mapped[int | None]
    both_ns: Mapped[int | None]
    idle_ns: Mapped[int | None]
    unmeasured: Mapped[str | None]
    file_bytes: Mapped[int]
    """Also of a file that is left out."""
    file_left_out: Mapped[str | None]
    traced_at: Mapped[int]
    """By its host's clock."""
    content: Mapped[bytes] = mapped_column(deferred=True)
    """Compressed JSON: `devices` and `content` as in `step_times.TracedCall`."""
    file: Mapped[bytes | None] = mapped_column(deferred=True)
    """Empty once it is in the store; NULL where it is left out."""
    sha256: Mapped[str | None]
    """Of the file in the store, and where it is there; as of `Media`."""
    location: Mapped[str | None]
    times: Mapped[list[Any] | None] = mapped_column(deferred=True)
    """By device its id and nanoseconds computing, in collectives, both at once, idle; NULL of servers before."""


class Artifact(Base):
    """A file, or a directory as one zip, that a program keeps with its run. Its bytes are in the store of content."""

    __tablename__ = "artifact"
    __table_args__ = (
        one_of("state", ArtifactState),
        UniqueConstraint("member_id", "seq"),
        Index("ix_artifact_run_id_saved_at", "run_id", "saved_at", "id"),
        Index("ix_artifact_project_id_id", "project_id", "id"),
        Index("ix_artifact_sha256", "sha256"),
        Index("ix_artifact_state_touched_at", "state", "touched_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str]
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    attempt_id: Mapped[str]
    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"))
    seq: Mapped[int]
    rank: Mapped[int]
    host_id: Mapped[str]
    name: Mapped[str]
    kind: Mapped[str | None]
    is_directory: Mapped[bool]
    files: Mapped[int]
    size_bytes: Mapped[int]
    sha256: Mapped[str]
    about: Mapped[dict[str, Any]]
    """What the program says of it: `metadata`."""
    received_bytes: Mapped[int]
    """As of `touched_at`, when its host last asked or sent."""
    touched_at: Mapped[int]
    location: Mapped[str | None]
    """Where its bytes are, once they are stored; others of the project with the same content may name it too."""
    reason: Mapped[str | None]
    """Why it is lost."""
    saved_at: Mapped[int]
    stored_at: Mapped[int | None]


class NonFiniteRecord(Base):
    """The first reduction of a name, as one member saw it, whose result was NaN or infinite."""

    __tablename__ = "non_finite"
    __table_args__ = (Index("ix_non_finite_run_id_call_seq", "run_id", "call", "seq"),)

    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    seq: Mapped[int]
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    attempt_id: Mapped[str]
    step: Mapped[int]
    call: Mapped[int]
    body: Mapped[dict[str, Any]]
    """`op`, `shape`, `replicas`, `result_count` as in `events.NonFiniteEvent`."""
    recorded_at: Mapped[int]


class PlacementRecord(Base):
    """What the engine of one member really built."""

    __tablename__ = "placement_record"

    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"), primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str]
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempt.id"), index=True)
    strategy: Mapped[str]
    executor: Mapped[str]
    replicas: Mapped[list[Any]]
    programs: Mapped[dict[str, Any] | None]
    """`{"programs": [StepProgram, ...], "more": 0}`, of the member of rank 0."""
    recorded_at: Mapped[int]


class ArrivalRecord(Base):
    """When a member of a gang came to the collectives of its newest sampled steps."""

    __tablename__ = "arrival_record"

    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"), primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str]
    attempt_id: Mapped[str]
    samples: Mapped[list[Any]]
    """Of each the call and its points, as `telemetry.step_times.Point`."""
    older: Mapped[list[Any] | None] = mapped_column(deferred=True)
    """Those before, of fewer and fewer calls."""
    recorded_at: Mapped[int]


class VariableRecord(Base):
    """A variable of the program and each place that holds a copy."""

    __tablename__ = "variable_record"
    __table_args__ = (Index("ix_variable_record_attempt_id", "attempt_id"),)

    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    seq: Mapped[int]
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str]
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempt.id"))
    shape: Mapped[list[Any]]
    dtype: Mapped[str]
    synchronization: Mapped[str]
    aggregation: Mapped[str]
    homes: Mapped[list[Any]]
    size_bytes: Mapped[int]
