"""What a member reports: telemetry with a gapless `seq`, and its end."""

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, SkipValidation, StringConstraints, model_validator

from drumline.contracts.arrays import (
    MAX_DIMENSIONS,
    MAX_WHOLE_TEXT,
    ArraySummary,
    NotWhole,
    ReductionSampling,
    Shape,
    read_base64,
    unpack_arrays,
)
from drumline.contracts.arrivals import MAX_ARRIVAL_SAMPLES, ArrivalSample
from drumline.contracts.artifacts import SavedArtifact
from drumline.contracts.base import (
    MAX_NOT_FINITE,
    MAX_PLACE,
    AtMost,
    CheckpointId,
    Contract,
    DeviceId,
    Finite,
    IncarnationId,
    NameColumn,
    NotFinite,
    Reply,
    Text,
    TimeColumn,
    Timestamp,
    not_finite_in,
)
from drumline.contracts.media import MAX_SUMMARY_NAME, MAX_SUMMARY_NAMES, MAX_SUMMARY_TEXT_BYTES, MediaContent
from drumline.contracts.profiles import TracedCall
from drumline.contracts.programs import MemberTick, StepProgram
from drumline.contracts.reasons import EndReason
from drumline.contracts.spent import Spent
from drumline.contracts.throughput import Throughput
from drumline.contracts.usage import Usage

MAX_EVENTS_PER_BATCH = 5_000
MAX_REDUCTION_VALUES = 16_384
MAX_LOG_TEXT = 65_536
MAX_POINTS = 16_384
"""Values of one metrics event."""
MAX_REPLICAS_TOLD = 4_096
"""Replicas that a placement, a variable or a reduction lists: JSON of so many is parsed in some 6 ms, in one breath."""
MAX_DEVICES_TOLD = 4_096
"""Of one replica."""
MAX_RESULT_BYTES = 262_144
MAX_RESULT_MARKS_BYTES = 16_384
"""Of a result's event beside its value: 20 places with what stands there, each character escaped."""
MAX_CUT_BYTES = 65_536
"""Output and metrics are cut so that no event of theirs is longer as JSON."""

MetricName = Annotated[Text, StringConstraints(min_length=1, max_length=200)]
Name = Annotated[Text, StringConstraints(min_length=1, max_length=300)]
Place = Annotated[Text, StringConstraints(min_length=1, max_length=MAX_PLACE)]
Seq = Annotated[int, Field(ge=1, lt=2**53)]
Step = Annotated[int, Field(ge=0, lt=2**53)]
Micros = Annotated[int, Field(ge=0, lt=2**53)]
Axis = Annotated[int, Field(gt=-(2**31), lt=2**31)]
Axes = Axis | Annotated[tuple[Axis, ...], Field(fail_fast=True), AtMost(MAX_DIMENSIONS)]


class _Event(Contract):
    seq: Seq
    at: Timestamp
    """The worker's clock, for display; the server's clock decides."""


class StateEvent(_Event):
    """The member came to a new phase of its life; `starting` and `running` move the member's state."""

    kind: Literal["state"] = "state"
    phase: Literal["starting", "loading", "compiling", "running", "finishing"]
    detail: Annotated[Text, StringConstraints(max_length=2_000)] = ""


class PlacedReplica(Contract):
    """One replica and its logical devices, in logical order."""

    replica: Annotated[int, Field(ge=0, lt=2**53)]
    devices: Annotated[tuple[DeviceId, ...], Field(fail_fast=True), AtMost(MAX_DEVICES_TOLD)]


class PlacementEvent(_Event):
    """What the engine really built on the placed devices."""

    kind: Literal["placement"] = "placement"
    strategy: Name
    executor: Annotated[Text, StringConstraints(max_length=40)]
    replicas: Annotated[tuple[PlacedReplica, ...], Field(fail_fast=True), AtMost(MAX_REPLICAS_TOLD)]


class ProgramEvent(_Event):
    """A program of a step was dispatched for the first time; told by the member of rank 0 for all of its gang."""

    kind: Literal["program"] = "program"
    program: StepProgram


class VariableEvent(_Event):
    """A variable was made, and where its copies live."""

    kind: Literal["variable"] = "variable"
    name: Name
    shape: Shape
    dtype: Annotated[Text, StringConstraints(max_length=40)]
    synchronization: Annotated[Text, StringConstraints(max_length=40)]
    aggregation: Annotated[Text, StringConstraints(max_length=40)]
    homes: Annotated[tuple[DeviceId | Literal["host"], ...], Field(fail_fast=True), AtMost(MAX_REPLICAS_TOLD)]
    """Each place that holds a copy; `host` where a copy is in host memory and not on a placed device."""
    size_bytes: Annotated[int, Field(ge=0, lt=2**53)]


class ProgressEvent(_Event):
    """How far the program is; at most a few a second."""

    kind: Literal["progress"] = "progress"
    step: Step
    """Steps done: one more than the step that was logged last."""
    total_steps: Step | None = None
    steps_per_s: float | None = None
    examples_per_s: float | None = None
    throughput: Throughput | None = None
    last_collective: Annotated[Text, StringConstraints(max_length=200)] | None = None


class ArrivalsEvent(_Event):
    """When a member of a gang came to the collectives of sampled calls; all members sample the same ones."""

    kind: Literal["arrivals"] = "arrivals"
    samples: Annotated[tuple[ArrivalSample, ...], Field(min_length=1, fail_fast=True), AtMost(MAX_ARRIVAL_SAMPLES)]


class MetricsEvent(_Event):
    """Columns of scalars: `values[i]` was logged under `names[i]` at `steps[i]`, `times[i]`."""

    kind: Literal["metrics"] = "metrics"
    names: Annotated[NameColumn, AtMost(MAX_POINTS)]
    steps: Annotated[tuple[Step, ...], Field(fail_fast=True), AtMost(MAX_POINTS)]
    times: Annotated[TimeColumn, AtMost(MAX_POINTS)]
    values: Annotated[tuple[float, ...], Field(fail_fast=True), AtMost(MAX_POINTS)]


class MediaEvent(_Event):
    """A histogram, image, text or table that was logged under a name."""

    kind: Literal["media"] = "media"
    name: MetricName
    step: Step
    value: MediaContent


_SummaryName = Annotated[Text, StringConstraints(min_length=1, max_length=MAX_SUMMARY_NAME)]


class SummaryEvent(_Event):
    """Values of the run's summary; later ones of a name replace it."""

    kind: Literal["summary"] = "summary"
    numbers: Annotated[dict[_SummaryName, int | float], AtMost(MAX_SUMMARY_NAMES)] = Field(default_factory=dict)
    texts: Annotated[
        dict[_SummaryName, Annotated[Text, StringConstraints(max_length=MAX_SUMMARY_TEXT_BYTES)]],
        AtMost(MAX_SUMMARY_NAMES),
    ] = Field(default_factory=dict)


class ProfileEvent(TracedCall, _Event):
    """A call of `strategy.run` was traced."""

    kind: Literal["profile"] = "profile"


class ArtifactEvent(_Event):
    """A file or directory is kept on the host, which sends it apart from telemetry."""

    kind: Literal["artifact"] = "artifact"
    artifact: SavedArtifact


class ReductionEvent(_Event):
    """One reduction: what each replica put in, and what came out."""

    kind: Literal["reduction"] = "reduction"
    name: Name
    step: Step
    """The program's step, as it names it."""
    call: Step | None = None
    """The call of `strategy.run` that it belongs to, from 0; `None` from workers that called that the step."""
    op: Literal["sum", "mean"]
    axis: Axes | None = None
    origin: Literal["host", "in_step"] = "host"
    inputs: Annotated[tuple[ArraySummary, ...], Field(fail_fast=True), AtMost(MAX_REPLICAS_TOLD)]
    counts: Annotated[
        tuple[Annotated[int, Field(ge=0, lt=2**53)], ...], Field(fail_fast=True), AtMost(MAX_REPLICAS_TOLD)
    ]
    """How many elements each replica contributes along `axis`; 1 each where `axis` is None."""
    denominator: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    """What the sum was divided by; `None` for a sum."""
    result: ArraySummary
    sampling: ReductionSampling | None = None
    """Of an array of more than 32 elements that a step reduced; `None` also from workers that did not tell it."""
    whole: Annotated[str, StringConstraints(max_length=MAX_WHOLE_TEXT)] | None = None
    """Every element of inputs and result, bit for bit: as `unpack_arrays` reads them, in base64."""
    not_whole: NotWhole | None = None
    """Why they are not kept, where `values` is missing somewhere; `None` also from workers that did not tell it."""

    @model_validator(mode="after")
    def _check_whole(self) -> "ReductionEvent":
        if self.whole is not None:
            unpack_arrays(read_base64(self.whole), (*self.inputs, self.result))
        return self


class NonFiniteReplica(Contract):
    """What a replica put into a reduction that is no finite number."""

    replica: Annotated[int, Field(ge=0, lt=2**53)]
    nan_count: Annotated[int, Field(ge=0, lt=2**53)]
    inf_count: Annotated[int, Field(ge=0, lt=2**53)]


class NonFiniteEvent(_Event):
    """The first reduction of a name whose result is not finite; every call of `strategy.run` is looked at."""

    kind: Literal["non_finite"] = "non_finite"
    name: Name
    step: Step
    call: Step
    op: Literal["sum", "mean"]
    shape: Shape
    replicas: Annotated[tuple[NonFiniteReplica, ...], Field(fail_fast=True), AtMost(MAX_REPLICAS_TOLD)]
    """Those of the member that put NaN or infinities in; none anywhere where a sum of finite numbers was too large."""
    result_count: Annotated[int, Field(ge=0, lt=2**53)]
    """Elements of the result that are not finite."""


class LogEvent(_Event):
    """Output of the program. `offset` counts the bytes of this member's output before it, as UTF-8."""

    kind: Literal["log"] = "log"
    stream: Literal["stdout", "stderr", "system"]
    text: Annotated[Text, StringConstraints(max_length=MAX_LOG_TEXT)]
    offset: Annotated[int, Field(ge=0, lt=2**53)]


class CheckpointEvent(_Event):
    """A checkpoint is committed on disk and may be resumed from."""

    kind: Literal["checkpoint"] = "checkpoint"
    step: Step
    path: Annotated[Text, StringConstraints(max_length=1_000)]
    """Below the run's directory in its store: `f<fence>/step_<step>`."""
    size_bytes: Annotated[int, Field(ge=0, lt=2**53)]
    manifest: Annotated[Text, StringConstraints(max_length=100)]
    """Hash of the list of its files, their sizes and hashes."""


class RestoredEvent(_Event):
    """The program asked for the state to resume from: which checkpoint it got, and which were found damaged before."""

    kind: Literal["restored"] = "restored"
    checkpoint: CheckpointId | None = None
    """`None` where none was whole: the program starts over."""
    step: Step | None = None
    damaged: Annotated[tuple[CheckpointId, ...], Field(fail_fast=True), AtMost(1_000)] = ()


class TimeEvent(_Event):
    """What a stretch of the member's time went into; stretches follow each other without a gap."""

    kind: Literal["time"] = "time"
    begin_us: Micros
    """Microseconds since the member was claimed: both clocks of host and server stand there."""
    end_us: Micros
    spent_us: Annotated[dict[Spent, Micros], Field(min_length=1, max_length=len(Spent))]
    """By name; together as long as the stretch."""
    step: Step | None = None
    """Steps done at its end, in the program's own count."""
    usage: Usage | None = None
    """What the member's processes used until its end; told every few seconds only."""


class GapEvent(_Event):
    """Something is lost at this place of the stream: what and how much; 0 bytes where that is not known."""

    kind: Literal["gap"] = "gap"
    what: Literal["log", "metrics", "reduction", "media", "profile", "artifact", "spool"]
    count: Annotated[int, Field(ge=1, lt=2**53)]
    size_bytes: Annotated[int, Field(ge=0, lt=2**53)] = 0
    detail: Annotated[Text, StringConstraints(max_length=500)] = ""


LOOKED_AT = 10_000
"""Values of a result that comes without the marks of its numbers: some 5 ms."""


class ResultEvent(_Event):
    """What `main` returned."""

    kind: Literal["result"] = "result"
    value: SkipValidation[JsonValue]
    """Comes from a JSON text: to look at each of its values once more holds the interpreter for 30 ms."""
    not_finite: Annotated[dict[Place, NotFinite], AtMost(MAX_NOT_FINITE)] = Field(default_factory=dict)
    """Its numbers that JSON does not have, by place: in `value` they are text, as what a program returned as text."""

    @model_validator(mode="before")
    @classmethod
    def _mark(cls, fields: Any) -> Any:  # Any: whatever was sent
        if isinstance(fields, dict) and "not_finite" not in fields:
            # A worker of today names them itself; for one that does not, the server's time is everybody's.
            return {**fields, "not_finite": not_finite_in(fields.get("value"), look_at=LOOKED_AT)}
        return fields


WorkerEvent = Annotated[
    StateEvent
    | PlacementEvent
    | ProgramEvent
    | VariableEvent
    | ProgressEvent
    | ArrivalsEvent
    | MetricsEvent
    | MediaEvent
    | SummaryEvent
    | ReductionEvent
    | NonFiniteEvent
    | ProfileEvent
    | ArtifactEvent
    | LogEvent
    | CheckpointEvent
    | RestoredEvent
    | TimeEvent
    | GapEvent
    | ResultEvent,
    Field(discriminator="kind"),
]


class EventBatch(Contract):
    """Body of `POST /worker/members/{id}/events`: consecutive `seq` from `first_seq`."""

    fence: Annotated[int, Field(ge=1, lt=2**53)]
    incarnation: IncarnationId
    first_seq: Seq
    events: Annotated[tuple[WorkerEvent, ...], Field(min_length=1), AtMost(MAX_EVENTS_PER_BATCH)]


class MemberEnd(Contract):
    """Body of `POST /worker/members/{id}/end`: sent at once, ahead of telemetry still in the spool."""

    fence: Annotated[int, Field(ge=1, lt=2**53)]
    incarnation: IncarnationId
    reason: EndReason
    message: Annotated[Text, StringConstraints(max_length=8_000)] = ""
    exit_code: Annotated[int, Field(gt=-(2**31), lt=2**31)] | None = None
    signal: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    last_seq: Annotated[int, Field(ge=0, lt=2**53)]
    ended_at: Timestamp
    devices_released: bool
    """Whether every process of the member is proven dead, so that its devices may be given out."""
    tick: MemberTick | None = None
    """Where the program was at its end."""
    output_bytes: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    """How much the program has written in all; None where nobody knows."""
    waited_s: Annotated[Finite, Field(ge=0, lt=2**31)] | None = None
    """Since it was first tried to tell this, as far as the worker knows; None from one that doesn't say."""


class MemberAck(Reply):
    """Answer to events and end: what is durable, how much more is welcome, and news for the member."""

    acked_seq: Annotated[int, Field(ge=0, lt=2**53)]
    window: Annotated[int, Field(ge=0, lt=2**53)]
    """How many events the next batch may hold."""
    cancel: bool
    fence: int
