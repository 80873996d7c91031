"""What a run shows of itself: placement, metrics, reductions, logs."""

from typing import Literal, get_args

from drumline.contracts.api.exchanges import Exchanges
from drumline.contracts.api.fleet import DeviceFacts
from drumline.contracts.arrays import ArraySummary, NotWhole, ReductionSampling
from drumline.contracts.base import (
    AttemptId,
    DeviceId,
    MemberId,
    ReductionId,
    Reply,
    RunId,
    Timestamp,
)
from drumline.contracts.events import PlacedReplica


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
    exchanges: Exchanges = Exchanges()
    """What its steps exchange."""


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
    not_finite: tuple[int, ...] = ()
    """How many of them are NaN or infinite."""


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


class MetricGap(Reply):
    """A stretch of the x axis in which values are lost: between the last value before it and the first one after it.

    No line belongs over it.
    """

    start: float | None
    """In the unit of x; `None` where nothing was logged before."""
    end: float | None
    """`None` where nothing was logged after."""
    count: int | None
    """Of values (`metrics`), or of records of any kind (`spool`); `None` where nobody knows."""
    size_bytes: int | None
    what: Literal["metrics", "spool"]


class Metrics(Reply):
    """The metrics of a run, bucketed by the server."""

    run: RunId
    x: Literal["step", "time"]
    series: tuple[MetricSeries, ...]
    gaps: tuple[MetricGap, ...] = ()
    """Of the attempts that are shown; at most 1000."""
    began: Timestamp | None = None
    """Where an axis of time has its zero: when the first attempt shown began; `None` where nothing was logged."""


class SharedName(Reply):
    """A metric that runs of a comparison logged."""

    name: str
    unit: str
    runs: int
    """How many of the runs."""


class MetricGroup(Reply):
    """Metrics whose names begin with the same word and `/`."""

    group: str
    """`train` of `train/loss`; empty for names without one."""
    names: int


class MetricGroups(Reply):
    """The groups of a run's metrics by name; what the engine measures itself (`sys`) is the last."""

    groups: tuple[MetricGroup, ...]
    total: int
    """Names in all groups."""
    complete: bool
    """Whether there are no further names: at most 20 000 are counted."""
    first_step: int | None
    """The least step of any of them."""
    last_step: int | None


class MetricName(Reply):
    """A metric of a run, as a row of the list of them; its figures are of all attempts."""

    name: str
    unit: str
    n: int
    first_step: int
    last_step: int


CurveColumn = Literal["min", "max", "mean", "last", "count", "not_finite"]
CURVE_COLUMNS: tuple[CurveColumn, ...] = get_args(CurveColumn)


class NumberedPoints(MetricPoints):
    """Buckets of an axis that several curves share, but those without a value; columns not asked for are empty."""

    bucket: tuple[int, ...]
    """The number of each bucket on the axis, from 0, ascending: the same number is the same stretch in every curve.

    Of many values it may reach up to an eighth of its width into the next; `x` says where it ends.
    """


class ComparedRun(Reply):
    """A run of a comparison."""

    run: RunId
    began: Timestamp | None
    """When the first attempt that is shown did: the zero of a relative axis; `None` where nothing was logged."""
    gaps: tuple[MetricGap, ...] = ()
    """Where values are lost, on the axis; at most 1000."""


class ComparedCurve(Reply):
    """One metric of one run on the axis of a comparison."""

    run: RunId
    name: str
    unit: str
    n: int
    """How many values were logged in all."""
    last_step: int
    points: NumberedPoints


class ComparedMetrics(Reply):
    """Metrics of several runs on one axis, in the order of the runs asked for, each run's by name."""

    x: Literal["step", "time", "relative"]
    """`time` counts seconds from 1970 UTC on, `relative` from when each run began."""
    start: float | None
    """Where the first bucket begins; `None` where nothing was logged."""
    end: float | None
    """Where the last bucket ends; its own end is in it."""
    bucket_width: float
    """Of every bucket of every curve, in the unit of x: bucket k begins at `start + k * bucket_width`.

    0 where each distinct x of all curves has a bucket of its own.
    """
    runs: tuple[ComparedRun, ...]
    curves: tuple[ComparedCurve, ...]


class Gap(Reply):
    """Telemetry of one member that is lost, with its size, its place, and why. What is not known is `None`."""

    id: str
    attempt: AttemptId
    member: MemberId
    what: Literal["log", "metrics", "reduction", "media", "profile", "artifact", "spool", "result"]
    """`spool` is of any kind: records that the host, or its disk, lost."""
    count: int | None
    size_bytes: int | None
    detail: str
    first_byte: int | None
    """Where lost output stood in the member's output; a line of the log says it there."""
    next_byte: int | None
    after_step: int | None
    """Of the member's last metric before it, and its time."""
    after: Timestamp | None
    before_step: int | None
    """Of the member's first metric after it, and its time."""
    before: Timestamp | None
    recorded_at: Timestamp


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
    nth: int = 1
    """Which one of its name and origin in its step, from 1: a program may reduce several times under one name."""
    of: int = 1
    """How many there are."""
    replicas: int
    ragged: bool
    """Whether the replicas contributed different numbers of elements."""
    result_shape: tuple[int, ...]
    result: float | None
    """The result where it is a scalar."""


class ReductionOutlier(Reply):
    """A replica that stands apart from the others, and by what."""

    replica: int
    by: Literal["value", "norm", "cosine", "not_finite"]
    """`value`: its own, where the result is a scalar. `norm` and `cosine` (to the result): of arrays. `not_finite`: how
    many NaN and infinities it put in, where most replicas put in none."""
    value: float
    median: float
    """Of all replicas."""
    deviations: float | None
    """From the median, in standard deviations as the median absolute deviation estimates them (1.4826 times); `None`
    where that is 0, and of `not_finite`."""


class Reduction(ReductionSummary):
    """A reduction whole: what each replica put in, how it was combined, what came out."""

    inputs: tuple[ArraySummary, ...]
    counts: tuple[int, ...]
    denominator: int | None
    output: ArraySummary
    recorded_at: Timestamp
    sampling: ReductionSampling | None = None
    """Of a large array that a step reduced: how often such are recorded, and what that costs."""
    outliers: tuple[ReductionOutlier, ...] = ()
    """At most 32: those that are not finite first, then by how far they are away; none of fewer than four replicas."""
    outlier_count: int = 0
    """How many there are."""
    whole_bytes: int | None = None
    """Of every element of inputs and output, which `/values` gives; `None` where they are not kept."""
    not_whole: NotWhole | None = None
    """Why they are not, where `values` is missing somewhere and that is known."""


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


class LogGap(Reply):
    """How much output is lost."""

    size_bytes: int | None
    """`None` where nobody knows."""


class LogSegment(Reply):
    """A stretch of output of one stream. Lines are cut at newlines by whoever shows them."""

    stream: Literal["stdout", "stderr", "system"]
    at: Timestamp
    first_byte: int
    first_line: int
    """Number of the line that the segment's first byte belongs to, from 1."""
    text: str
    gap: LogGap | None = None
    """Set where output is lost: `text` is a line of ours that says so, and stands for the bytes that are missing."""


LogStream = Literal["stdout", "stderr", "system"]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]
"""From the least grave on."""


class LogHit(Reply):
    """A line of output that holds what was looked for."""

    member: MemberId
    rank: int
    line: int
    """Its number in the member's output, from 1."""
    first_byte: int
    at: Timestamp
    stream: LogStream
    text: str
    """The line; of one that is long, up to 1000 bytes around the place."""


class LogSearchPart(Reply):
    """A part of what a search through output finds: a line of the answer. The last one says why it ended."""

    state: Literal["searching", "done", "full", "paused"]
    """`full`: as many lines as were asked for. `paused`: after its time. Both continue from `cursor`."""
    hits: tuple[LogHit, ...]
    searched_bytes: int
    """Of all members so far."""
    total_bytes: int
    """What there is to look at, as of the beginning."""
    lines: int
    """Ends of lines so far."""
    cursor: str
    """Continues behind what was looked at, also when there is more output by then."""


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
    ended: bool = False
    """Whether nothing will be added."""
    complete: bool
    """Whether it has ended, and nothing of it is lost."""
