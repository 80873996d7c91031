"""How a worker introduces itself, stays alive and takes work. Everything here needs the worker's own token.

A worker may be one version older than its server: what the server answers is a Reply, of which unknown fields are
ignored, and fields that a worker sends have defaults where older workers do not know them.
"""

from typing import Annotated, Literal

from pydantic import Field, JsonValue, PlainSerializer, SecretStr, StringConstraints, field_validator

from drumline.contracts.base import (
    AtMost,
    AttemptId,
    CheckpointId,
    Contract,
    DeviceId,
    HostId,
    IncarnationId,
    MemberId,
    PlanId,
    Reply,
    RunId,
    Secret,
    Sha256,
    Text,
    Timestamp,
    Title,
    VersionId,
)
from drumline.contracts.heartbeats import TimeScale
from drumline.contracts.plans import ProbeOrder
from drumline.contracts.programs import MemberTick
from drumline.contracts.reasons import EndReason
from drumline.contracts.spec import CheckpointSpec, Entrypoint, Limits, RecordSpec, StrategySpec
from drumline.contracts.stacks import StacksRequest
from drumline.slices import KnownSlice

PROTOCOL_VERSION, OLDEST_PROTOCOL = 4, 2
"""The older one is the last release's: server and worker may be one release apart, either being the newer one."""
KEYED_PROTOCOL, KEYED_HEARTBEAT_PROTOCOL = 3, 4
"""From which on a member is claimed with a key, and heartbeats too tell of it with the key."""
KEY_HEADER = "Drumline-Member-Key"
"""Of all that is said of a member once it is claimed with a key."""
MemberKey = Annotated[
    SecretStr,
    Field(min_length=43, max_length=43),
    PlainSerializer(lambda secret: secret.get_secret_value(), return_type=str, when_used="json"),
]
"""256 random bits that a worker makes for one member, before it claims it."""

Coordinator = Annotated[
    Text,
    StringConstraints(
        pattern=r"^(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?):[0-9]{1,5}$", max_length=260
    ),
]
"""`host:port` as every member of the gang can reach it."""
MAX_HOST_DEVICES = 1_024
"""Of one host, and so of members that live on it: that many are read in some 10 ms."""
MAX_MEMBERS_LEFT = 4_096
"""Members of one host of which something is left."""
HostName = Annotated[Title, StringConstraints(min_length=1, max_length=253)]


class DeviceReport(Contract):
    """One accelerator (or simulated CPU device) as the probe saw it."""

    platform: Literal["cpu", "gpu", "tpu"]
    index: Annotated[int, Field(ge=0, lt=65_536)]
    """JAX's local hardware index on this host and platform."""
    kind: Annotated[Text, StringConstraints(max_length=200)]
    """JAX's `device_kind`, such as `cpu` or `NVIDIA H200`."""
    memory_bytes: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    coords: (
        Annotated[tuple[Annotated[int, Field(gt=-(2**31), lt=2**31)], ...], Field(fail_fast=True), AtMost(16)] | None
    ) = None
    core_on_chip: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    simulated: bool = False


MAX_WARNING, MAX_FIX = 600, 300


class HostWarning(Contract):
    """Something of a host that its operator should know and mend; it takes runs all the same."""

    code: Annotated[Text, StringConstraints(max_length=40, pattern=r"^[a-z][a-z0-9_]{0,39}$")]
    """For programs: `accelerator_unused`."""
    message: Annotated[Text, StringConstraints(min_length=1, max_length=MAX_WARNING)]
    fix: Annotated[Text, StringConstraints(max_length=MAX_FIX)] = ""
    """What to do about it."""


class HostSlice(Contract):
    """The TPU slice that a host is of; hosts that name the same one are linked, and may share a run of TPUStrategy."""

    name: Annotated[Title, StringConstraints(min_length=1, max_length=100)]
    topology: Annotated[Text, StringConstraints(max_length=40)]
    """Its chips, such as `v4:2x2x4`."""

    @field_validator("topology")
    @classmethod
    def _exists(cls, topology: str) -> str:
        return str(KnownSlice.parse(topology))


class LiveMember(Contract):
    """A member that is alive on the host when its worker (re)starts."""

    member: MemberId
    attempt: AttemptId
    fence: Annotated[int, Field(ge=1, lt=2**53)]
    pid: Annotated[int, Field(ge=1, lt=2**53)]
    started_at: Timestamp


class Enroll(Contract):
    """Body of `POST /worker/enroll`, with a single-use enrolment token as bearer."""

    name: HostName


class Enrolled(Reply):
    """The host's identity and its own long-lived token; shown this once."""

    host: HostId
    token: Secret


class Register(Contract):
    """Body of `POST /worker/register`: a new incarnation of a worker, what it has and what it finds alive."""

    protocol: Annotated[int, Field(ge=0, lt=2**31)] = PROTOCOL_VERSION
    name: HostName
    boot_id: Annotated[Text, StringConstraints(min_length=1, max_length=100)]
    place: Annotated[Text, StringConstraints(max_length=100)] = ""
    """Names the machine and the data directory, alike after every restart and reboot and nowhere else. Empty where the
    worker cannot tell, or is older: what an incarnation before it began may then live on somewhere else."""
    version: Annotated[Text, StringConstraints(max_length=40)]
    jax_version: Annotated[Text, StringConstraints(max_length=40)]
    cpu_count: Annotated[int, Field(ge=1, lt=2**53)]
    memory_bytes: Annotated[int, Field(ge=0, lt=2**53)]
    devices: Annotated[tuple[DeviceReport, ...], Field(fail_fast=True), AtMost(MAX_HOST_DEVICES)]
    members: Annotated[tuple[LiveMember, ...], Field(fail_fast=True), AtMost(MAX_HOST_DEVICES)] = ()
    unproven: Annotated[tuple[MemberId, ...], Field(fail_fast=True), AtMost(MAX_MEMBERS_LEFT)] = ()
    """Members that are over, with processes that SIGKILL did not end."""
    unstarted: Annotated[tuple[MemberId, ...], Field(fail_fast=True), AtMost(MAX_MEMBERS_LEFT)] = ()
    """Members that this worker has claimed and started no process of, nor will."""
    notices: Annotated[tuple[HostWarning, ...], Field(max_length=8)] = ()
    """Warnings, by the name that workers of every version send them under."""
    checkpoint_store: Annotated[Text, StringConstraints(max_length=100)] = ""
    """Names the volume that holds the checkpoints where hosts may share it; empty for a directory of this host."""
    slice: HostSlice | None = None
    """None: its devices are linked with those of no other host, as far as the worker knows."""
    replaces: Annotated[Text, StringConstraints(max_length=100)] | None = None
    """The host's incarnation until now, empty if the worker knows none: a registration that arrives late, after a newer
    one, names an older incarnation and is refused. None from workers that do not say."""


class Registered(Reply):
    """What the worker needs from now on."""

    host: HostId
    incarnation: IncarnationId
    devices: tuple[DeviceId, ...]
    """Ids in the order of `Register.devices`."""
    queue: str
    """The Celery queue of this host's notifications."""
    broker_url: Secret | None
    heartbeat_s: float
    takeover_s: float
    """Both in force, `time_scale` included."""
    time_scale: TimeScale = 1.0
    """Of what the worker knows by itself: the lead times of TERM and KILL, and when it tries again."""
    server_version: str
    protocol: int = 2
    """What the server speaks; those of protocol 2 do not say."""


OptionalKey = Annotated[MemberKey | None, Field(exclude_if=lambda key: key is None)]
"""Of the member; left out for servers that do not know the field."""


class MemberHeartbeat(Contract):
    """A live member in a heartbeat: what it says of it needs the key from workers of `KEYED_HEARTBEAT_PROTOCOL`."""

    member: MemberId
    fence: Annotated[int, Field(ge=1, lt=2**53)]
    step: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    last_collective: Annotated[Text, StringConstraints(max_length=200)] | None = None
    tick: MemberTick | None = None
    key: OptionalKey = None


class UnsentTelemetry(Contract):
    """A member that has ended, and of whose telemetry its host still has something to send. Needs the key alike."""

    member: MemberId
    unsent_bytes: Annotated[int, Field(ge=0, lt=2**53)]
    key: OptionalKey = None


class Heartbeat(Contract):
    """Body of `POST /worker/heartbeat`, every `heartbeat_s` seconds."""

    incarnation: IncarnationId
    sent_at: Timestamp
    members: Annotated[tuple[MemberHeartbeat, ...], Field(fail_fast=True), AtMost(MAX_HOST_DEVICES)] = ()
    plans: Annotated[tuple[PlanId, ...], Field(fail_fast=True), AtMost(16)] = ()
    """Those whose programs it probes."""
    draining: bool = False
    notified: bool = False
    """Whether a notification came since the last one: there is news, most likely."""
    unsent: Annotated[tuple[UnsentTelemetry, ...], Field(max_length=MAX_MEMBERS_LEFT)] = ()
    protocol: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """What the worker speaks to it; None from those of protocol 2, and to servers of it."""


class MemberRefusal(Reply):
    """Why nothing is taken of what a heartbeat told of a member; all else of the heartbeat counts."""

    member: MemberId
    code: str
    """As of a problem: `fenced` for no key, or another."""
    detail: str
    hint: str = ""


class MemberNotice(Reply):
    """Something the server wants of one member: claim it, cancel it, or kill it because it is fenced off."""

    member: MemberId
    attempt: AttemptId
    fence: int
    grace_s: float | None = None
    """Of a cancel: the grace period, where the canceller gave one instead of the run's own."""
    reason: EndReason | None = None
    """Of a stop: what the gang ends of, PEER_LOST or HANG; such a member has no grace. None for a cancel."""


class DeviceCheck(Reply):
    """A quarantined device that the worker is to check: whether its last holder is dead, and whether it computes."""

    device: DeviceId
    platform: Literal["cpu", "gpu", "tpu"]
    index: int
    fence: int
    member: MemberId
    """Its last holder."""


class HeartbeatReply(Reply):
    """What is new; a notification over the broker only makes the worker ask for it early."""

    assigned: tuple[MemberNotice, ...] = ()
    cancelled: tuple[MemberNotice, ...] = ()
    fenced: tuple[MemberNotice, ...] = ()
    probes: tuple[DeviceCheck, ...] = ()
    """Devices to check; the protocol keeps the name that this had."""
    plans: tuple[ProbeOrder, ...] = ()
    """Programs to probe for plans that the worker did not name."""
    unwanted_plans: tuple[PlanId, ...] = ()
    """Of those that it named."""
    held: tuple[MemberId, ...] = ()
    """Members whose gang waits for the telemetry of another one to be taken: their clocks are paused (P12)."""
    stacks: tuple[StacksRequest, ...] = ()
    """Members of which somebody wants to know where they stand."""
    refused: tuple[MemberRefusal, ...] = ()
    """Of members that this heartbeat told of."""
    drain: bool = False
    """Whether an operator wants the host to claim nothing more, and its programs to stop and resume elsewhere."""
    server_time: Timestamp
    protocol: int = 2
    """As in `Registered`."""


class DeviceCheckReport(Contract):
    """What a check of a quarantined device found."""

    device: DeviceId
    fence: Annotated[int, Field(ge=0, lt=2**53)]
    """As the request had it."""
    usable: bool
    """Whether a program on it gave the right answer."""
    survivors: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**53)], ...], Field(fail_fast=True), AtMost(64)] = ()
    """Processes of its last holder that SIGKILL did not end."""
    message: Annotated[Text, StringConstraints(max_length=1_000)] = ""


class DeviceCheckReports(Contract):
    """Body of `POST /worker/probes`."""

    incarnation: IncarnationId
    probes: Annotated[tuple[DeviceCheckReport, ...], Field(fail_fast=True), AtMost(MAX_HOST_DEVICES)]


class Claim(Contract):
    """Body of `POST /worker/members/{id}/claim`."""

    incarnation: IncarnationId
    fence: Annotated[int, Field(ge=1, lt=2**53)]
    coordinator: Coordinator | None = None
    """Of rank 0 of a gang: where it will let the others meet. Sent once the answer to a first claim told its rank."""
    key: MemberKey | None = None
    """What is said of the member has to come with it from now on (`KEY_HEADER`); the same in each claim of it. The
    worker makes it, so that a claim whose answer is lost can be made again. None from workers of protocol 2."""


class AssignedDevice(Reply):
    """A device of a gang, with the replica and logical position that the scheduler gave it."""

    device: DeviceId
    platform: Literal["cpu", "gpu", "tpu"]
    index: int
    replica: int
    logical: int
    rank: int = 0
    """Of the member that drives it."""
    simulated: bool = False
    """Whether a CPU device of the host stands for it."""
    coords: tuple[int, ...] | None = None
    core_on_chip: int | None = None


class Rendezvous(Reply):
    """Where the members of a gang meet; a gang of one needs no meeting.

    A member of several starts nothing before all are claimed and rank 0 has said where to meet: until then
    `coordinator` is None, and the worker claims again every `CLAIM_AGAIN_S`. So an attempt that expires half claimed
    has run nothing.
    """

    rank: int
    """Index of this member's process."""
    size: int
    """How many processes there are."""
    coordinator: Coordinator | None = None
    devices: tuple[AssignedDevice, ...] = ()
    """Devices of the whole gang by replica and logical position; empty for a gang of one, and until it is complete."""
    hosts: tuple[str, ...] = ()
    """Names of the members' hosts by rank, for messages; empty until then too, and from older servers."""
    one_store: bool = False
    """Of a gang: whether the hosts of all members keep checkpoints in one store. Else it can't save any."""


class ResumePoint(Reply):
    """A checkpoint that an attempt may resume from; its files are in `<store>/<run>/f<fence>/step_<step>`."""

    checkpoint: CheckpointId
    run: RunId
    fence: Annotated[int, Field(ge=1, lt=2**53)]
    step: Annotated[int, Field(ge=0, lt=2**53)]
    manifest: Annotated[Text, StringConstraints(max_length=100)]


class Claimed(Reply):
    """Answer to a claim: everything needed to run the member, and nothing secret."""

    member: MemberId
    attempt: AttemptId
    run: RunId
    version: VersionId
    job_name: str
    fence: int
    attempt_number: int
    bundle: Sha256
    entrypoint: Entrypoint
    strategy: StrategySpec
    record: RecordSpec
    checkpoint: CheckpointSpec
    parameters: dict[str, JsonValue]
    limits: Limits
    replicas: int
    devices: tuple[AssignedDevice, ...]
    rendezvous: Rendezvous
    cancel: bool
    resume: Annotated[tuple[ResumePoint, ...], Field(fail_fast=True), AtMost(1_000)] = ()
    """Where to resume, best first: the first that verifies. None means from the beginning, unless there is:"""
    resume_from: CheckpointId | None = None
    """The run was told to resume from this one. Where nothing of `resume` can be read it fails."""
    takes_times: bool = False
    """Whether the server takes events of the kind `time`, and `waited_s` of an end."""
    takes_throughput: bool = False
    """Whether it takes `throughput` of a progress event."""
    profile_every: int | None = None
    """`record.profile_every`, which `record` itself leaves out: workers of before refuse a number there."""
    large_reductions_every: int | None = None
    """`record.large_reductions_every`, for the same reason."""
    takes_arrivals: bool = False
    """Whether it takes events of the kind `arrivals`."""
    takes_strips: bool = False
    """Whether it takes strips, cosines and `sampling` of a reduction event."""
    takes_usage: bool = False
    """Whether it takes `usage` of a time event."""
    takes_whole: bool = False
    """Whether it takes `whole` and `not_whole` of a reduction event."""
    takes_programs: bool = False
    """Whether it takes events of the kind `program`."""
    artifact_bytes: int | None = None
    """Of the largest artifact that it takes; None where it takes none."""
