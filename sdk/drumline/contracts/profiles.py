"""What a trace of a call of `strategy.run` shows: the operations of each device, and what its time went into."""

from binascii import Error as Base64Error
from binascii import a2b_base64
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from drumline.contracts.base import AtMost, Contract, DeviceId, Text

MAX_PROFILES = 100
"""Calls that one process traces."""
MAX_TRACE_S = 5.0
"""A call that takes longer is traced so far."""
MAX_PROFILE_BYTES = 512 * 1024
"""Of one trace's files, packed: in base64 they fit in a batch of telemetry, which has at most 1 MiB."""
MAX_PROFILES_BYTES = 16 * 1024 * 1024
"""Of the files of all traces of one process."""
MAX_OPERATIONS = 4_096
"""That the lanes of one trace show together, the longest ones."""
MAX_OPERATION_NAMES = 256
MAX_OPERATION_NAME = 100
MAX_LANES = 256
"""Devices of a process that are told: an event as large as it may be is read in some 8 ms, in one breath."""

Unmeasured = Literal["platform", "long", "unreadable"]
"""Why there are no times: the platform tells no operations of devices; the call took longer than is traced; the trace
could not be read."""
FileLeftOut = Literal["large", "full", "unreadable"]
"""Why a trace's files are not kept: larger than MAX_PROFILE_BYTES, beyond MAX_PROFILES_BYTES, or not readable."""

_Ns = Annotated[int, Field(ge=0, lt=2**53)]
_Column = Annotated[tuple[_Ns, ...], Field(fail_fast=True), AtMost(MAX_OPERATIONS)]


class Operation(Contract):
    """An operation of the compiled program, as XLA calls it."""

    name: Annotated[Text, StringConstraints(min_length=1, max_length=MAX_OPERATION_NAME)]
    is_collective: bool


class DeviceTime(Contract):
    """What one device did from the first operation of any device of the process to the last one's end.

    `computing_ns + collective_ns - both_ns + idle_ns` is that time; waiting in a collective for others counts as it.
    """

    device: DeviceId
    computing_ns: _Ns
    collective_ns: _Ns
    both_ns: _Ns
    """Computing and a collective at once."""
    idle_ns: _Ns
    operations: _Ns
    """How many it did."""


class DeviceLane(Contract):
    """Operations of one device by their begin, as columns: `operations` are places in the list of the profile.

    One that begins and ends within another is a part of that.
    """

    device: DeviceId
    begins_ns: _Column
    durations_ns: _Column
    operations: Annotated[
        tuple[Annotated[int, Field(ge=0, lt=MAX_OPERATION_NAMES)], ...], Field(fail_fast=True), AtMost(MAX_OPERATIONS)
    ]

    @model_validator(mode="after")
    def _check(self) -> "DeviceLane":
        if not len(self.begins_ns) == len(self.durations_ns) == len(self.operations):
            raise ValueError("has columns of different lengths")
        return self


class Lanes(Contract):
    """What the devices of one process did in a traced call."""

    operations: Annotated[tuple[Operation, ...], Field(fail_fast=True), AtMost(MAX_OPERATION_NAMES)] = ()
    lanes: Annotated[tuple[DeviceLane, ...], Field(fail_fast=True), AtMost(MAX_LANES)] = ()
    left_out: _Ns = 0
    """Operations that are not shown: of too many the shortest."""
    devices_left_out: _Ns = 0
    """Devices that are not told, beyond MAX_LANES."""

    @model_validator(mode="after")
    def _check(self) -> "Lanes":
        shown = sum(len(lane.operations) for lane in self.lanes)
        if shown > MAX_OPERATIONS:
            raise ValueError(f"has {shown} operations; at most {MAX_OPERATIONS}")
        if any(number >= len(self.operations) for lane in self.lanes for number in lane.operations):
            raise ValueError("names an operation that it does not have")
        return self


class TracedCall(Contract):
    """A traced call of `strategy.run`, or of `run_steps` with several steps."""

    step: _Ns
    """The program's step, as it names it."""
    call: _Ns
    """The first call that was traced, from 0."""
    steps: Annotated[int, Field(ge=1, lt=2**53)] = 1
    """How many steps it holds: several of `run_steps`."""
    span_ns: _Ns = 0
    """From the first operation of any device of the process to the last one's end."""
    devices: Annotated[tuple[DeviceTime, ...], Field(fail_fast=True), AtMost(MAX_LANES)] = ()
    unmeasured: Unmeasured | None = None
    content: Lanes = Lanes()
    file: Annotated[str, StringConstraints(max_length=(MAX_PROFILE_BYTES + 2) // 3 * 4)] | None = None
    """A zip of what jax.profiler wrote, in base64."""
    file_left_out: FileLeftOut | None = None
    file_bytes: _Ns = 0
    """Of the zip, also where it is left out."""

    @model_validator(mode="after")
    def _check(self) -> "TracedCall":
        self.read()
        return self

    def read(self) -> bytes | None:
        """The zip."""
        try:
            content = None if self.file is None else a2b_base64(self.file, strict_mode=True)
        except Base64Error as error:
            raise ValueError(f"is no base64: {error}") from None
        if content is not None and (not content.startswith(b"PK") or len(content) > MAX_PROFILE_BYTES):
            raise ValueError(f"{len(content)} bytes that begin with {content[:4]!r} are no zip of {MAX_PROFILE_BYTES}")
        return content
