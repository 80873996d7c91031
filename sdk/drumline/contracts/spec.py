"""What a user asks for: the job (immutable once versioned) and the run of it; and which strategies nothing can run yet.

A program on one of those would end in its first moment. What a strategy needs of hosts is no matter of this place
(`drumline_server.base.shapes`).
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from drumline.contracts.base import AtMost, CheckpointId, Contract, Parameters, PlanId, Refusal, RunId, Sha256, Text
from drumline.slices import KnownSlice, SliceError, extents

_LONGEST_NAME = 63
_JOB_NAME = r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$"


def _job_name(given: str) -> str:
    if len(given) > _LONGEST_NAME or re.fullmatch(_JOB_NAME, given) is None:
        plain = re.sub(r"[^a-z0-9._-]+", "-", given[:200].lower()).strip("._-")[:63].rstrip("._-")
        raise ValueError(
            "a name has at most 63 lower-case letters, digits, '.', '_' and '-', "
            "and begins and ends with a letter or digit" + (f"; try {plain!r}" if plain else "")
        )
    return given


JobName = Annotated[
    str, AfterValidator(_job_name), Field(json_schema_extra={"pattern": _JOB_NAME, "maxLength": _LONGEST_NAME})
]
Entrypoint = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][\w]*(\.[A-Za-z_][\w]*)*:[A-Za-z_]\w*$", max_length=200)
]
Platform = Literal["any", "cpu", "gpu", "tpu"]
Spread = Literal["pack", "balance", "one_host"]
Executor = Literal["auto", "spmd", "pmap", "mpmd"]
MAX_TORUS_DIMENSIONS = 4
"""Three of the torus, and the cores of a chip."""
MAX_LABELS = 64
LabelKey = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$", max_length=63),
    Refusal("is no name of a label; use letters, digits, '.', '_', '-' and '/', at most 63, a letter or digit first"),
]
LabelValue = Annotated[Text, StringConstraints(max_length=200)]

TorusShape = Annotated[tuple[Annotated[int, Field(ge=1, le=4096)], ...], AtMost(MAX_TORUS_DIMENSIONS)]

MAX_REPLICAS = 65_536
MAX_PARAMETERS = 200


class MirroredSpec(Contract):
    """One replica per device, every variable mirrored on each (`MirroredStrategy`)."""

    kind: Literal["mirrored"] = "mirrored"
    batch: Literal["global", "per_replica"] = "global"
    cross_device_ops: Literal["auto", "reduce_to_one", "hierarchical"] = "auto"
    executor: Executor = "auto"
    collectives: Literal["strategy", "jax"] = "strategy"
    """What carries the exchange between replicas. `jax`: the program computes with JAX's own collectives over
    `strategy.devices`, never with the strategy. Either may be split over several hosts."""


class CentralStorageSpec(Contract):
    """Compute replicated over devices, variables only on the parameter device (`CentralStorageStrategy`)."""

    kind: Literal["central_storage"] = "central_storage"
    parameter_device: Annotated[str, StringConstraints(pattern=r"^(cpu|gpu|tpu):\d{1,5}$", max_length=9)] | None = None
    executor: Executor = "auto"


class TpuSpec(Contract):
    """Replicas of one or more logical devices on a TPU slice (`TPUStrategy`).

    `computation_shape`: the block of cores along (x, y, z, core) that each replica owns, one by default;
    `computation_stride`: how far apart they are. `topology`: the slice that all of them fill together, such as
    `v4:2x2x1`; None takes any box that they fill. Devices that lie on no slice, CPU devices for one, stand for it.
    """

    kind: Literal["tpu"] = "tpu"
    topology: Annotated[str, StringConstraints(max_length=40)] | None = None
    computation_shape: TorusShape | None = None
    computation_stride: TorusShape | None = None
    device_order: Literal["auto", "ring", "mesh"] = "auto"
    executor: Executor = "auto"


class OneDeviceSpec(Contract):
    """Everything on one device (`OneDeviceStrategy`)."""

    kind: Literal["one_device"] = "one_device"


_Spec = MirroredSpec | CentralStorageSpec | TpuSpec | OneDeviceSpec
StrategySpec = Annotated[_Spec, Field(discriminator="kind")]
STRATEGIES: Mapping[str, type[_Spec]] = {spec.model_fields["kind"].default: spec for spec in get_args(_Spec)}
"""What there is, by kind."""


class ProgramRef(Contract):
    """Which code to run: a bundle by content and the function in it."""

    bundle: Sha256
    entrypoint: Entrypoint


class RecordSpec(Contract):
    """What the engine's observer writes down, and how often."""

    reductions_every: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    large_reductions_every: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Every so many calls of `strategy.run` also the arrays of more than 32 elements that steps reduce are recorded,
    rounded up to calls that `reductions_every` samples; None: as often as it costs at most one percent."""
    profile_every: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Every so many calls of `strategy.run` one is traced with its devices' work, never the first; None: none is."""
    divergence_every: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Every so many calls of `strategy.run` the copies of mirrored variables are compared; None: never."""
    on_divergence: Literal["warn", "stop"] = "warn"
    """What a copy that differs does: a line in the log, or also the end of the run."""


class CheckpointSpec(Contract):
    """Which calls of `run.checkpoint` save, and which checkpoints are kept."""

    every_steps: Annotated[int, Field(ge=1, lt=2**53)] | None = None
    """A call saves when so many steps have passed since the last that did; without a number each call saves."""
    keep: Annotated[int, Field(ge=2, le=1000)] = 2
    """The newest so many: at least two, so that one is left when the newest turns out to be damaged."""
    keep_every_steps: Annotated[int, Field(ge=1, lt=2**53)] | None = None
    """Checkpoints of steps that this divides are kept for good."""


class JobSpec(Contract):
    """What a job version is made of; its content hash is the version's identity."""

    name: JobName
    program: ProgramRef
    strategy: StrategySpec = MirroredSpec()
    record: RecordSpec = RecordSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()

    @model_validator(mode="after")
    def _check_profiles(self) -> "JobSpec":
        if self.record.profile_every is not None and getattr(self.strategy, "collectives", None) == "jax":
            raise ValueError(
                f"record.profile_every={self.record.profile_every} traces calls of strategy.run, and a program with "
                "strategy.collectives='jax' makes none; leave one of the two out, or let the program use jax.profiler"
            )
        return self


class Resources(Contract):
    """How many replicas, on what, and how they are spread over hosts."""

    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = 1
    platform: Platform = "any"
    spread: Spread = "pack"


class Limits(Contract):
    """Time limits in seconds; `None` means no limit of the user's own."""

    queue_s: Annotated[float, Field(gt=0, le=31_536_000)] | None = None
    run_s: Annotated[float, Field(gt=0, le=31_536_000)] | None = None
    step_s: Annotated[float, Field(ge=1, le=604_800)] | None = None
    """From one step (or log) to the next, compiling left out; None: a careful limit made from the run's own steps."""
    first_step_s: Annotated[float, Field(ge=1, le=604_800)] | None = None
    """From the program's start to its first step or log; None: 900 s in which it neither computes nor compiles."""
    rendezvous_s: Annotated[float, Field(ge=1, le=86_400)] | None = None
    """Until the members of a gang have met; None: 300."""
    grace_s: Annotated[float, Field(ge=0, le=3600)] = 30.0


class Retries(Contract):
    """How often a run is tried again after a failure of the program, and of the machinery."""

    user: Annotated[int, Field(ge=0, le=100)] = 0
    infrastructure: Annotated[int, Field(ge=0, le=100)] = 3


class RunOptions(Contract):
    """What belongs to one run and not to the job version."""

    parameters: Parameters = Field(default_factory=dict)
    resources: Resources = Resources()
    limits: Limits = Limits()
    retries: Retries = Retries()
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    labels: Annotated[dict[LabelKey, LabelValue], AtMost(MAX_LABELS)] = Field(default_factory=dict)

    @field_validator("parameters")
    @classmethod
    def _check_count(cls, parameters: Parameters) -> Parameters:
        if len(parameters) > MAX_PARAMETERS:
            raise ValueError(f"{len(parameters)} parameters; at most {MAX_PARAMETERS}")
        return parameters


class RunSubmit(RunOptions):
    """The body of `POST /runs`: the job to version, and this run's own options."""

    job: JobSpec
    wait_for_devices: bool = False
    """Queue the run even if no host known now could ever hold it."""
    plan: PlanId | None = None
    """The plan that this run is to be compared with."""
    anyway: bool = False
    """Queue it even if a plan, its own or another of the same content, says that it does not fit its chips."""
    resume_from: CheckpointId | RunId | None = None
    """Go on from this checkpoint, or from the newest one of this run; from one before it if it proves damaged."""


def find_unsupported(strategy: StrategySpec) -> tuple[str, str] | None:
    """The field of the strategy that nothing can run, and why with the way out; None for one that runs."""
    match strategy:
        case TpuSpec() if strategy.executor not in ("auto", "spmd"):
            return (
                "executor",
                f"tpu computes in one SPMD program; leave out executor={strategy.executor}",
            )
        case TpuSpec():
            return _find_unknown_slice(strategy)
        case MirroredSpec(batch="per_replica") if strategy.executor != "auto":
            return (
                "executor",
                f"mirrored with batch=per_replica chooses its executor itself; leave out executor={strategy.executor}",
            )
    return None


def _find_unknown_slice(strategy: TpuSpec) -> tuple[str, str] | None:
    """A field that no slice has: an extent that is none, or a topology that does not exist."""
    checks: dict[str, Callable[[], object]] = {
        "computation_shape": lambda: extents("computation_shape", strategy.computation_shape),
        "computation_stride": lambda: extents("computation_stride", strategy.computation_stride),
        "topology": lambda: strategy.topology is not None and KnownSlice.parse(strategy.topology),
    }
    for field, check in checks.items():
        try:
            check()
        except SliceError as error:
            return field, str(error)
    return None
