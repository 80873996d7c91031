"""What a run shows of itself: placement, metrics, reductions, logs, checkpoints."""

from typing import Literal

from drumline.contracts.api.fleet import DeviceFacts
from drumline.contracts.base import Reply, Timestamp
from drumline.contracts.events import ArraySummary, PlacedReplica
from drumline.contracts.ids import AttemptId, CheckpointId, DeviceId, HostId, MemberId, ReductionId, RunId
from drumline.contracts.states import CheckpointState


class PlacedDevice(DeviceFacts):
    """A device of a placement: which replica sits on it, and where the device itself is."""

    device: DeviceId
    replica: int | None
    """`None` for a parameter device that computes nothing."""
    logical: int | None


class PlacedVariable(Reply):
    """A variable and each place that holds a copy of it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    synchronization: str
    aggregation: str
    homes: tuple[str, ...]
    size_bytes: int


class Placement(Reply):
    """Where the replicas of a run sit: as scheduled, and as the engine confirmed it."""

    run: RunId
    attempt: AttemptId | None
    strategy: str
    executor: str | None
    """What the engine chose; `None` until it has."""
    confirmed: bool
    """Whether the engine reported this placement, and not only the scheduler."""
    devices: tuple[PlacedDevice, ...]
    replicas: tuple[PlacedReplica, ...]
    variables: tuple[PlacedVariable, ...]


class MetricPoints(Reply):
    """Buckets over the x axis, column by column; `min` and `max` bound every value that was logged."""

    x: tuple[float, ...]
    """Step, or seconds since the attempt began, of the bucket's last value."""
    min: tuple[float | None, ...]
    max: tuple[float | None, ...]
    mean: tuple[float | None, ...]
    last: tuple[float | None, ...]
    count: tuple[int, ...]
    """Values in the bucket, NaN and infinities included; those are left out of min, max and mean."""


class MetricGap(Reply):
    """Values of a metric that were lost: so many, between two that are there."""

    after: float | None
    """x of the last value before them; `None` where there is none."""
    before: float | None
    """x of the first value after them; `None` where there is none yet."""
    count: int


class MetricSeries(Reply):
    """One metric of a run."""

    name: str
    unit: str
    n: int
    """How many values were logged in all."""
    last_step: int
    bucket_width: float
    """In the unit of x; 0 where no two values share a bucket."""
    points: MetricPoints
    gaps: tuple[MetricGap, ...] = ()
    """Where values were lost, by x: no line is to be drawn across."""


class Metrics(Reply):
    """The metrics of a run, bucketed by the server."""

    run: RunId
    x: Literal["step", "time"]
    series: tuple[MetricSeries, ...]


class ReductionSummary(Reply):
    """A recorded reduction as a row of a list."""

    id: ReductionId
    attempt: AttemptId
    step: int
    """The program's step."""
    call: int | None = None
    """The call of `strategy.run`, from 0; `None` in old rows, where `step` counts calls."""
    name: str
    op: Literal["sum", "mean"]
    axis: int | tuple[int, ...] | None
    origin: Literal["host", "in_step"]
    replicas: int
    ragged: bool
    """Whether the replicas contributed different numbers of elements."""
    result_shape: tuple[int, ...]
    result: float | None
    """The result where it is a scalar."""


class Reduction(ReductionSummary):
    """A reduction whole: what each replica put in, how it was combined, what came out."""

    inputs: tuple[ArraySummary, ...]
    counts: tuple[int, ...]
    denominator: int | None
    output: ArraySummary
    recorded_at: Timestamp


class ReductionNames(Reply):
    """Which reductions a run has: for choosing one and for the step scrubber."""

    names: tuple["ReductionName", ...]


class ReductionName(Reply):
    """One name with the steps at which it was recorded (at most 2000, evenly thinned)."""

    name: str
    op: Literal["sum", "mean"]
    axis: int | tuple[int, ...] | None
    origin: Literal["host", "in_step"]
    recorded: int
    steps: tuple[int, ...]
    ragged_steps: tuple[int, ...]


class LogSegment(Reply):
    """A stretch of output of one stream. Lines are cut at newlines by whoever shows them."""

    stream: Literal["stdout", "stderr", "system"]
    at: Timestamp
    first_byte: int
    first_line: int
    """Number of the line that the segment's first byte belongs to, from 1."""
    text: str


class Logs(Reply):
    """Output of one member from a byte on."""

    run: RunId
    attempt: AttemptId | None
    member: MemberId | None
    segments: tuple[LogSegment, ...]
    first_byte: int
    next_byte: int
    """Ask from here for what follows."""
    end_byte: int
    """Bytes of output stored so far."""
    lines: int
    """Newlines stored so far."""
    complete: bool
    """Whether the output ended: nothing will be added."""


class Checkpoint(Reply):
    """A checkpoint that was committed and registered."""

    id: CheckpointId
    attempt: AttemptId
    """The attempt that saved it."""
    fence: int
    step: int
    state: CheckpointState
    host: HostId
    """The host that wrote it."""
    host_name: str
    shared: bool
    """Whether other hosts read the same volume; else only this one can go on from it."""
    path: str
    """Below the run's directory on the volume."""
    size_bytes: int
    manifest: str
    """Hash of the list of its files, their sizes and hashes."""
    created_at: Timestamp
