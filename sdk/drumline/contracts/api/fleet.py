"""The fleet: hosts, devices, and the overview of all."""

from typing import Literal

from drumline.contracts.api.access import PrincipalRef
from drumline.contracts.api.runs import RunSummary, Why
from drumline.contracts.base import AttemptId, DeviceId, HostId, MemberId, Reply, RunId, Timestamp
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import DeviceState


class DeviceFacts(Reply):
    """What a device is and where."""

    host: HostId
    host_name: str
    platform: Literal["cpu", "gpu", "tpu"]
    index: int
    kind: str
    memory_bytes: int | None
    coords: tuple[int, ...] | None
    core_on_chip: int | None
    simulated: bool


class Quarantine(Reply):
    """Why a device is not given out: its last holder is not proven dead. A probe or an operator frees it."""

    reason: Literal["lease_ran_out", "death_not_proven"]
    """`lease_ran_out`: the host fell silent; `death_not_proven`: its worker cannot say that all processes are gone."""
    sentence: str
    since: Timestamp
    run: RunId
    attempt: AttemptId
    member: MemberId
    probed_at: Timestamp | None
    probe_message: str
    """What the newest probe found; empty before the first."""


class Device(DeviceFacts):
    """One device of the inventory."""

    id: DeviceId
    state: DeviceState
    run: RunId | None
    """The run that holds it."""
    job: str | None
    replica: int | None
    quarantine: Quarantine | None = None


class HostFailure(Reply):
    """A run that failed on a host for a reason that may be the host's."""

    run: RunId
    job: str
    reason: EndReason
    at: Timestamp


class HostWarning(Reply):
    """Something of a host that should be mended, and how; it takes runs all the same."""

    code: str
    message: str
    fix: str


class HostTrouble(Reply):
    """Too many runs failed on a host: it takes no more, or, where it is the only one, it is marked."""

    kind: Literal["quarantined", "flagged"]
    sentence: str
    since: Timestamp
    failures: tuple[HostFailure, ...]


Chip = tuple[int, ...]
"""Where a chip is on its slice: (x, y, z)."""


class HostSlice(Reply):
    """The TPU slice that a host is of, with hosts that name the same."""

    name: str
    topology: str
    """Such as `v4:2x2x4`."""
    chips: Chip
    """Its chips along (x, y, z)."""
    wraps: tuple[bool, ...]
    """Along which of (x, y, z) the last chip is linked to the first."""


class ChipLink(Reply):
    """A link between two chips of a slice."""

    chips: tuple[Chip, ...]
    """The two of them."""
    hosts: tuple[HostId | None, ...]
    """The hosts that drive the two; None where the one that does is not registered."""
    wraps: bool
    """Whether it goes from the last chip of a row to the first."""


class Host(Reply):
    """A machine with a worker."""

    id: HostId
    name: str
    state: Literal["live", "suspect", "lost", "draining", "quarantined"]
    """`suspect`: silent for 15 s, shown and nothing else; `lost`: silent for longer than the lease."""
    devices: int
    free_devices: int
    platforms: tuple[str, ...]
    simulated_devices: int = 0
    """How many of its devices CPU devices stand for."""
    version: str
    protocol: int | None = None
    """What its worker speaks; None where it has not registered since servers keep it."""
    jax_version: str
    cpu_count: int
    memory_bytes: int
    registered_at: Timestamp
    last_heartbeat_at: Timestamp
    runs: tuple[RunId, ...]
    checkpoint_store: str = ""
    """The volume on which it keeps checkpoints, shared by hosts that name the same; empty: a directory of its own."""
    slice: HostSlice | None = None
    """None: its devices are linked with those of no other host, as far as is known."""
    drain_requested: bool = False
    """An operator wants no more runs here; `undrain` takes that back."""
    drain_requested_by: PrincipalRef | None = None
    """Who asked for that."""
    trouble: HostTrouble | None = None
    warnings: tuple[HostWarning, ...] = ()
    """What its worker found at its start that should be mended, such as a GPU that its JAX cannot use."""


class Overview(Reply):
    """What the first page shows, in one answer."""

    devices_total: int
    devices_held: int
    hosts: tuple[Host, ...]
    """The first 200 by name, then up to 20 further ones that need looking at."""
    hosts_total: int = 0
    hosts_silent: int = 0
    """Of all: those that fell silent, and on which no runs fail."""
    hosts_failing: int = 0
    """Of all: those that failures of several runs took out of service, or would have."""
    devices: tuple[Device, ...]
    """At most 2048; beyond that the hosts' counts stand for them."""
    attention: tuple[RunSummary, ...]
    """Runs that stand still, the longest first, then those that failed last within a day (at most 5 of each)."""
    stalled_total: int = 0
    failed_total: int = 0
    """Within a day, deleted ones left out."""
    queued: tuple["QueuedRun", ...]
    queued_total: int
    running: tuple[RunSummary, ...]
    running_total: int
    recent: tuple[RunSummary, ...]
    """The runs that ended last, the last one first (at most 10); those that run are `running`."""


class QueuedRun(Reply):
    """A waiting run and the reason that it waits."""

    run: RunSummary
    why: Why


class StreamHint(Reply):
    """Something of a list changed: fetch it again. Topics `runs` and `fleet` carry only these."""

    topic: Literal["runs", "fleet"]
    run: RunId | None = None
    host: HostId | None = None
