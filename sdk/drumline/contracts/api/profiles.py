"""Traced calls of `strategy.run`, listed and shown by lane."""

from drumline.contracts.base import AttemptId, ProfileId, Reply, RunId, Timestamp
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


class ProfileLanes(Profile):
    """A traced call with what each device did in it."""

    times: tuple[DeviceTime, ...]
    operations: tuple[Operation, ...]
    lanes: tuple[DeviceLane, ...]
    left_out: int
    """Operations that no lane shows: of too many the shortest."""
    devices_left_out: int
    """Devices of the process that have no lane, nor count in the means: beyond 256."""
