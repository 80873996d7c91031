"""Traced calls of `strategy.run`, listed and shown by lane; and how long each replica computes in them."""

from typing import Literal

from drumline.contracts.api.pages import Page
from drumline.contracts.api.telemetry import Gap
from drumline.contracts.base import AttemptId, DeviceId, ProfileId, Reply, RunId, Timestamp
from drumline.contracts.profiles import DeviceLane, DeviceTime, FileLeftOut, Operation, Unmeasured


class Profile(Reply):
    """A traced call. Times are means over the devices of its process, `None` where `unmeasured` says why.

    `computing_ns + collective_ns - both_ns + idle_ns` is `span_ns`.
    """

    id: ProfileId
    run: RunId
    attempt: AttemptId
    rank: int
    """Of the process that was traced; it has `devices`."""
    step: int
    """The program's."""
    call: int
    """The first call, from 0."""
    steps: int
    """How many steps it holds: several of `run_steps`."""
    at: Timestamp
    """When it was read, by its host's clock."""
    devices: int
    span_ns: int
    """From the first operation of any device of the process to the last one's end."""
    computing_ns: int | None = None
    collective_ns: int | None = None
    both_ns: int | None = None
    """Computing and a collective at once."""
    idle_ns: int | None = None
    unmeasured: Unmeasured | None = None
    file_bytes: int
    """Of the zip that can be downloaded, also where it is left out."""
    file_left_out: FileLeftOut | None = None


class Profiles(Page[Profile]):
    """A page of traced calls. The first one has `lost`: traces that began and are not among them, the newest first.

    The `detail` of each says at which step it began. Of the newest 2000 gaps of the run at most 100.
    """

    lost: tuple[Gap, ...] = ()


class ProfileLanes(Profile):
    """A traced call with what each device did in it."""

    times: tuple[DeviceTime, ...]
    operations: tuple[Operation, ...]
    lanes: tuple[DeviceLane, ...]
    left_out: int
    """Operations that no lane shows: of too many the shortest."""
    devices_left_out: int
    """Devices of the process that have no lane, nor count in the means: beyond 256."""


class ReplicaTime(Reply):
    """What one device did in the compared steps: medians, in milliseconds."""

    device: DeviceId
    host_name: str
    replica: int
    logical: int
    computing_ms: float
    collective_ms: float
    """In collectives, which is mostly waiting for the others, without what it computed meanwhile."""
    idle_ms: float
    waited_least: int
    """In how many of the steps: the others waited for it."""


class SlowReplica(Reply):
    """The replica that waits least in collectives, in four of five traced steps, at 10 % of a step or more."""

    replica: int
    device: DeviceId
    host_name: str
    gain_percent: float
    """Of the span; a step would end at most so much earlier if it were as fast as the next one."""
    gain_ms: float
    waited_least: int


class ReplicaTimes(Reply):
    """A page of the devices of an attempt in its newest traced steps, at most 8: who waits least comes first."""

    run: RunId
    attempt: AttemptId | None
    unmeasured: Literal["not_traced", "not_told"] | None
    """Why there is nothing. "not_traced": no step yet that all processes traced. "not_told": traces tell no devices."""
    steps: tuple[int, ...]
    span_ms: float | None = None
    """From the first operation of any device of a process to the last one's end."""
    slowest: SlowReplica | None = None
    devices: tuple[ReplicaTime, ...]
    next: str | None = None
    """The cursor of the following page, None on the last."""
