"""A plan: what a run would do, found out by running its first steps on simulated devices in a probe.

A probe is a short-lived process on a worker, with as many simulated CPU devices as the run has devices. It costs nobody
a device, touches no run, and ends at its deadline.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, JsonValue, StringConstraints, model_validator

from drumline.contracts.base import AtMost, Contract, Finite, IncarnationId, PlanId, Reply, Sha256, Text
from drumline.contracts.chips import ChipPlan, ParameterName, SliceName
from drumline.contracts.events import Axes
from drumline.contracts.spec import Entrypoint, RunSubmit, StrategySpec
from drumline.slices import SliceError, parse_chips

MAX_PROBE_DEVICES = 128
"""More simulated devices than this take a laptop too long to start."""
MAX_LISTED = 500
"""Variables, and collectives, that a plan lists; the rest is counted."""
PROBE_S = 60.0
PROBE_STEPS = 16
CHIP_PROBE_S = 600.0
"""For chips that are not there: their compiler takes minutes for a large program."""

Count = Annotated[int, Field(ge=0, lt=2**53)]
Label = Annotated[Text, StringConstraints(max_length=300)]
Word = Annotated[Text, StringConstraints(max_length=60)]
Rows = Annotated[tuple[Count, ...], Field(fail_fast=True), AtMost(MAX_PROBE_DEVICES)]
Shape = Annotated[tuple[Count, ...], Field(fail_fast=True), AtMost(32)]


class ProbeState(StrEnum):
    """How far the probe of a plan is."""

    NONE = "none"
    WAITING = "waiting"
    RUNNING = "running"
    READY = "ready"
    FAILED = "failed"
    BUSY = "busy"


PROBE_TRANSITIONS: dict[ProbeState, frozenset[ProbeState]] = {
    # To WAITING where the host that was asked lacks the chip's compiler, and the next one is.
    ProbeState.WAITING: frozenset(set(ProbeState) - {ProbeState.NONE}),
    ProbeState.RUNNING: frozenset({ProbeState.WAITING, ProbeState.READY, ProbeState.FAILED, ProbeState.BUSY}),
    **{end: frozenset() for end in (ProbeState.NONE, ProbeState.READY, ProbeState.FAILED, ProbeState.BUSY)},
}

ProbeFault = Literal[
    "program_error", "no_step", "timed_out", "unavailable", "cancelled", "no_compiler", "bad_chips", "not_plannable"
]


class ProbeTerms(Contract):
    """How long a probe may take, and how many of the program's steps it looks at."""

    limit_s: Annotated[float, Field(ge=1, le=3_600)] = PROBE_S
    steps: Annotated[int, Field(ge=1, le=1_000)] = PROBE_STEPS
    on: SliceName | None = None
    """Compile the program for this slice or these GPUs, which need not be there, and run it on shapes; their devices
    are the replicas'."""
    batch_parameter: ParameterName | None = None
    """Look for the largest value of this whole-numbered parameter of the program with which it fits `on`."""

    @model_validator(mode="after")
    def _check_search(self) -> "ProbeTerms":
        if self.batch_parameter is not None and self.on is None:
            raise ValueError("batch_parameter looks for the largest batch on a slice: name one with `on`")
        if self.on is not None:
            try:
                parse_chips(self.on)
            except SliceError as error:
                raise ValueError(f"on: {error}") from None
        return self


class PlanRequest(Contract):
    """Body of `POST /plan`: the run as it would be submitted, and how to probe it; without `probe` only placement."""

    run: RunSubmit
    probe: ProbeTerms | None = ProbeTerms()


class _Place(Reply):
    """Where something was first seen."""

    first_step: Count
    """The program's step."""
    first_call: Count | None = None
    """The call of `strategy.run`, from 0; `None` in old plans, where `first_step` counts calls."""

    @property
    def call(self) -> int:
        """`first_call`, also of an old plan."""
        return self.first_step if self.first_call is None else self.first_call


class PlannedVariable(Reply):
    """A variable and where its copies would live."""

    name: Label
    shape: Shape
    dtype: Word
    synchronization: Word
    aggregation: Word
    size_bytes: Count
    """Of one copy."""
    homes: Annotated[tuple[Count | Literal["host"], ...], Field(fail_fast=True), AtMost(MAX_PROBE_DEVICES + 1)]
    """Each place that holds a copy: the number of the device in the placement, or `host` memory."""


class PlannedCollective(_Place):
    """An exchange between replicas, with what each replica puts into it."""

    name: Label
    kind: Word
    """Such as `all_reduce`; `reduce` for a reduction outside the step."""
    op: Word | None
    origin: Literal["host", "in_step"]
    axis: Axes | None = None
    shape: Shape
    dtype: Word
    size_bytes: Count
    """What replica 0 puts in each time."""
    times: Count | None
    """How often in a call of `strategy.run`; `None` where that depends on values."""
    executor: Word
    observed: bool
    """Whether the run records it as a reduction, so that plan and run can be compared."""


class PlannedBatch(_Place):
    """Rows that each replica gets in a call of `strategy.run`, and in how many of the program's steps."""

    rows: Rows
    steps: Count
    executor: Word


class PlannedInput(Reply):
    """How a dataset is divided, in the engine's words; `None` is what only reading can tell."""

    text: Annotated[Text, StringConstraints(max_length=4_000)]
    steps: Count | None
    last_rows: Rows | None
    dropped_rows: Count | None


class PlannedMemory(_Place):
    """Bytes on each device while a compiled step runs, by XLA's analysis for the simulated devices."""

    argument: Count
    output: Count
    temp: Count
    alias: Count
    code: Count
    peak: Count


class PlanWarning(Reply):
    """Something that the user may not have meant."""

    code: Literal[
        "mean_of_means", "partial_batch", "per_replica_batch", "engine", "platform", "left_out", "no_shared_store"
    ]
    message: Annotated[Text, StringConstraints(max_length=2_000)]


class ProbedProgram(Reply):
    """What a program did in its first steps."""

    strategy: Label
    executor: Word
    steps: Count
    """Steps that were looked at, as the program names them."""
    calls: Count | None = None
    """Calls of `strategy.run` in them; `None` in old plans, where `steps` counts calls."""
    ended: bool
    """Whether the program returned within them, so that nothing is left out."""
    variables: Annotated[tuple[PlannedVariable, ...], Field(fail_fast=True), AtMost(MAX_LISTED)]
    collectives: Annotated[tuple[PlannedCollective, ...], Field(fail_fast=True), AtMost(MAX_LISTED)]
    batches: Annotated[tuple[PlannedBatch, ...], Field(fail_fast=True), AtMost(100)]
    inputs: Annotated[tuple[PlannedInput, ...], Field(fail_fast=True), AtMost(20)]
    memory: Annotated[tuple[PlannedMemory, ...], Field(fail_fast=True), AtMost(100)]
    warnings: Annotated[tuple[PlanWarning, ...], Field(fail_fast=True), AtMost(50)]
    seconds: Annotated[Finite, Field(ge=0, lt=2**53)]
    chips: ChipPlan | None = None
    """Of a plan for chips that are not there. Nothing was computed then: `batches` and `memory` are empty, and
    variables name no homes, as every device has a copy."""


class ProbeOrder(Reply):
    """What a worker needs to probe a program."""

    plan: PlanId
    bundle: Sha256
    entrypoint: Entrypoint
    strategy: StrategySpec
    parameters: dict[str, JsonValue]
    replicas: Annotated[int, Field(ge=1, le=MAX_PROBE_DEVICES)]
    devices_per_replica: Annotated[int, Field(ge=1, le=MAX_PROBE_DEVICES)]
    platform: Literal["cpu", "gpu", "tpu"]
    """Of the devices that the run would have."""
    steps: int
    limit_s: float
    on: SliceName | None = None
    """Compile for this slice instead of simulating `replicas`."""
    batch_parameter: ParameterName | None = None


class PlanReport(Contract):
    """Body of `POST /worker/plans/{id}/report`: `program`, or why there is none; or only how far the probe is."""

    incarnation: IncarnationId
    program: ProbedProgram | None = None
    busy: bool = False
    fault: ProbeFault | None = None
    message: Annotated[Text, StringConstraints(max_length=8_000)] = ""
    output: Annotated[Text, StringConstraints(max_length=8_000)] = ""
    """The end of what the program printed."""
    progress: bool = False
    """Nothing is over: `message` says how far the probe is."""


class PlanTaken(Reply):
    """Answer to a report."""

    state: ProbeState
