"""Runs: what was asked for, where it is, why it waits and how it ended."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from drumline.contracts.api.access import PrincipalRef
from drumline.contracts.api.arrivals import Straggler
from drumline.contracts.api.programs import JobVersion
from drumline.contracts.base import (
    AttemptId,
    BatchId,
    CheckpointId,
    Contract,
    HostId,
    MemberId,
    NotFinite,
    PlanId,
    ProjectId,
    Reply,
    RunId,
    Timestamp,
)
from drumline.contracts.events import NonFiniteReplica
from drumline.contracts.reasons import Category, EndReason
from drumline.contracts.spec import Limits, Resources, Retries
from drumline.contracts.states import AttemptState, CheckpointState, MemberState, RunState
from drumline.contracts.throughput import Throughput


class Reason(Reply):
    """Why something ended: the typed reason, its sentence and what was seen."""

    code: EndReason
    category: Category
    retryable: bool
    sentence: str
    message: str = ""


class Suggestion(Reply):
    """One thing that would let a queued run start now; the scheduler has tried it on the fleet as it is."""

    kind: Literal["replicas", "platform", "finish"]
    sentence: str
    replicas: int | None = None
    """The largest smaller number that would start now."""
    platform: str | None = None
    """A platform that has room for it."""
    runs: tuple[RunId, ...] = ()
    """Runs that hold what it needs."""


class Prediction(Reply):
    """When a queued run is expected to start, and on what that is based."""

    at: Timestamp | None = None
    """Never before the answer; None where that moment has passed."""
    overdue_s: float | None = None
    """How long ago it was expected to start, in seconds, where that moment has passed."""
    basis: str


WaitRule = Literal[
    "no_hosts",
    "no_such_platform",
    "too_few_devices",
    "host_quarantined",
    "host_draining",
    "host_lost",
    "host_moved",
    "devices_quarantined",
    "devices_busy",
    "behind_others",
    "retry_backoff",
    "starting",
    "checkpoint_host",
    "claiming",
    "stopping",
    "finishing",
    "telemetry",
]
"""What a run can wait for."""


class Wait(Reply):
    """What a run waits for, as a row of a list says it: the rule of its `why`, in a few words."""

    rule: WaitRule
    phrase: str


class Why(Reply):
    """Why a run waits: the rule that blocks, the evidence, and what would let it start."""

    rule: WaitRule
    sentence: str
    evidence: dict[str, JsonValue] = Field(default_factory=dict)
    remedy: str = ""
    position: int | None = None
    """1 is next in the queue."""
    suggestions: tuple[Suggestion, ...] = ()
    """What would let it start now; none in lists."""
    starts: Prediction | None = None
    """None where nothing is known."""


class Progress(Reply):
    """How far a run is, as its members last said."""

    step: int | None = None
    """How many are done: one more than the number of the last, which counts from 0."""
    total_steps: int | None = None
    steps_per_s: float | None = None
    examples_per_s: float | None = None
    throughput: Throughput | None = None
    """None of steps that an older worker did."""
    straggler: Straggler | None = None
    """The member that the others wait for, where there is one."""
    updated_at: Timestamp | None = None


class NonFinite(Reply):
    """The first reduction of a name whose result was NaN or infinite."""

    attempt: AttemptId
    name: str
    """The variable's, where the result is written into one."""
    step: int
    call: int
    op: Literal["sum", "mean"]
    shape: tuple[int, ...]
    replicas: tuple[NonFiniteReplica, ...]
    """Those that put them in, the first 16; none where a sum of finite numbers was too large."""
    replicas_in_all: int
    result_count: int
    """Elements of the result that are not finite."""
    at: Timestamp


class NonFinites(Reply):
    """The first of each name, earliest first."""

    items: tuple[NonFinite, ...]


class RunSummary(Reply):
    """A run as a row of a list."""

    id: RunId
    project: ProjectId
    job: str
    version: int
    owner: PrincipalRef = PrincipalRef()
    """Who submitted it."""
    state: RunState
    reason: Reason | None
    wait: Wait | None = None
    """Set while the run waits; the answer to a submission does not wait to find out."""
    strategy: str
    """The kind of strategy, such as `mirrored`."""
    replicas: int
    platform: str
    priority: int
    labels: dict[str, str]
    progress: Progress
    attempts: int
    created_at: Timestamp
    started_at: Timestamp | None
    """When the program of the last attempt began to run."""
    ended_at: Timestamp | None
    cancel_requested: bool
    cancelled_by: PrincipalRef | None = None
    """Who first asked it to stop; None where nobody did."""
    hosts: tuple[str, ...]
    """Names of the hosts of the last attempt."""
    batch: BatchId | None = None
    """The batch that it was submitted with."""
    not_finite: dict[str, NotFinite] = Field(default_factory=dict)
    """Values of its result that are NaN or infinite, by name, the first 20."""
    note: str = ""
    starred: bool = False
    archived_at: Timestamp | None = None
    fields: dict[str, int | float | str] = Field(default_factory=dict)
    """Of a list: what it has in the columns asked for; numbers that JSON does not have as their names."""
    first_non_finite: NonFinite | None = None
    """The first reduction that was NaN or infinite, of the newest attempt that had one; every call is looked at."""
    stalled_at: Timestamp | None = None
    """Since when it is known that its steps get no further; None while they do, and where it does not run."""


class RunWarning(Reply):
    """Something about a run that its user may not have meant."""

    code: Literal["no_shared_store"]
    """`no_shared_store`: its hosts cannot read each other's checkpoints, so `run.checkpoint` fails."""
    message: str


class Run(RunSummary):
    """A run whole: what was asked for, where it is, and what came out."""

    spec: JobVersion
    parameters: dict[str, JsonValue]
    resources: Resources
    limits: Limits
    retries: Retries
    wait_for_devices: bool
    plan: PlanId | None = None
    """The plan that it was submitted from."""
    resume_from: CheckpointId | None = None
    """The checkpoint that its first attempt was to resume from."""
    why: Why | None
    """Set while the run waits; the answer to a submission does not wait to find out."""
    result: JsonValue
    summary: dict[str, int | float | str] = Field(default_factory=dict)
    """What the program set by `run.summary`; NaN and infinities by the names that JSON of ours has for them."""
    last_event: int
    """The run's newest event; watch the stream from here."""
    rerun_of: RunId | None = None
    """The run that this one repeats."""
    warnings: tuple[RunWarning, ...] = ()
    """What its user may not have meant, while it has not ended."""
    deleted_from: Timestamp | None = None
    """When it is deleted for its age, as the project keeps runs; None for a starred one, or one that lives."""


class CancelRequest(Contract):
    """Body of `POST /runs/{id}:cancel`."""

    grace_s: Annotated[float, Field(ge=0, le=3600)] | None = None
    """Overrides the run's own `limits.grace_s`."""


class RerunRequest(Contract):
    """Body of `POST /runs/{id}:rerun`. Everything else is as the old run had it."""

    wait_for_devices: bool | None = None
    """Overrides the old run's own."""
    from_start: bool = False
    """Starts over where the old run resumed from a checkpoint."""


class Member(Reply):
    """One process of an attempt on one host."""

    id: MemberId
    host: HostId
    host_name: str
    rank: int
    state: MemberState
    phase: str
    pid: int | None
    exit_code: int | None
    signal: int | None
    reason: Reason | None
    claimed_at: Timestamp | None
    ended_at: Timestamp | None


class Attempt(Reply):
    """One gang placement of a run."""

    id: AttemptId
    number: int
    fence: int
    state: AttemptState
    reason: Reason | None
    created_at: Timestamp
    started_at: Timestamp | None
    ended_at: Timestamp | None
    resumed_from: CheckpointId | None = None
    """The checkpoint that its program resumed from; `None` while it has not asked, and where it started over."""
    resumed_step: int | None = None
    """The step of that checkpoint."""
    members: tuple[Member, ...]


class RunEvent(Reply):
    """Something that happened to a run. `seq` grows by one per run; the stream resumes from it."""

    seq: int
    at: Timestamp
    kind: str
    """`state`, `attempt`, `member`, `placement`, `variable`, `progress`, `metrics`, `reduction`, `log`, `checkpoint`,
    `restored`, `gap`, `result` or `cancel`."""
    attempt: AttemptId | None = None
    body: dict[str, JsonValue]


class SubmittedRun(Reply):
    """Answer to `POST /runs`."""

    run: Run
    created_version: bool
    """Whether this submission made a new job version."""


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
    """Whether other hosts read the same volume; else only this one can resume from it."""
    path: str
    """Below the run's directory on the volume."""
    size_bytes: int
    manifest: str
    """Hash of the list of its files, their sizes and hashes."""
    created_at: Timestamp
