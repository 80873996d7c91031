"""What agent, launcher, shim and runner say to each other, and the frames that carry it.

JSON over stream sockets, in frames of at most 64 KiB; a long message is several frames in a row.
"""

import json
import signal
import struct
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from drumline.contracts.base import AtMost, Contract, Text, Timestamp
from drumline.contracts.programs import Activity, MemberTick, StepProgram
from drumline.contracts.reasons import EndReason
from drumline.contracts.stacks import MemberStanding
from drumline.contracts.usage import MAX_DEVICES_USED, DeviceMemory
from drumline.contracts.worker_api import DeviceReport
from drumline_worker.host.rundir import Ending

MAX_FRAME_BYTES = 65_536
MAX_MESSAGE_BYTES = 2 * 1024 * 1024
_HEADER = struct.Struct(">I")
_MORE = 1 << 31
"""Set in a frame's length when the message continues in the next frame."""

Message = dict[str, Any]  # Any: JSON as it came; every reader validates it with a model


class FramingError(ValueError):
    """The peer broke the framing; nothing more can be read from this stream."""


def encode(message: Mapping[str, object]) -> bytes:
    """The frames of one message."""
    return encode_payload(json.dumps(message, separators=(",", ":")).encode())


def encode_payload(payload: bytes) -> bytes:
    """The frames of one message that is JSON already."""
    cuts = range(0, len(payload), MAX_FRAME_BYTES) if payload else range(1)
    frames = []
    for start in cuts:
        piece = payload[start : start + MAX_FRAME_BYTES]
        more = _MORE if start + MAX_FRAME_BYTES < len(payload) else 0
        frames.append(_HEADER.pack(len(piece) | more) + piece)
    return b"".join(frames)


class Decoder:
    """Puts messages together from whatever pieces the socket gives."""

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max = max_message_bytes
        self._raw = bytearray()
        self._message = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yields the payloads that `chunk` completes.

        Raises FramingError for a frame over 64 KiB or a message over the limit, after whatever was whole before it.
        """
        self._raw += chunk
        while (frame := self._next_frame()) is not None:
            piece, more = frame
            if len(self._message) + len(piece) > self._max:
                raise FramingError(f"a message is longer than {self._max} bytes")
            self._message += piece
            if not more:
                complete = bytes(self._message)
                self._message.clear()
                yield complete

    def _next_frame(self) -> tuple[bytes, bool] | None:
        if len(self._raw) < _HEADER.size:
            return None
        (header,) = _HEADER.unpack_from(self._raw)
        length, more = header & ~_MORE, bool(header & _MORE)
        if length > MAX_FRAME_BYTES:
            raise FramingError(f"a frame claims {length} bytes; at most {MAX_FRAME_BYTES} are allowed")
        end = _HEADER.size + length
        if len(self._raw) < end:
            return None
        piece = bytes(self._raw[_HEADER.size : end])
        del self._raw[:end]
        return piece, more


def parse(payload: bytes) -> Message:
    """One message as a dict; raises FramingError when it is no JSON object."""
    try:
        message = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise FramingError(f"a message is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise FramingError(f"a message is a JSON {type(message).__name__}, not an object")
    return message


TRY_S = 60
"""A device that has not answered by then is not usable."""


class Start(Contract):
    """Fork a shim for the member whose plan lies in `directory`."""

    op: Literal["start"] = "start"
    member: str
    directory: str


class ListDevices(Contract):
    """Look what devices there are."""

    op: Literal["list_devices"] = "list_devices"
    cpu_devices: int


class TryDevice(Contract):
    """Run a small program on one device, in a process of its own."""

    op: Literal["try_device"] = "try_device"
    name: str
    platform: str
    index: int


class Ready(Contract):
    """Everything is imported."""

    op: Literal["ready"] = "ready"
    pid: int


class Unready(Contract):
    """Something cannot be imported: the launcher ends."""

    op: Literal["unready"] = "unready"
    message: str


class Launched(Contract):
    """The shim is forked, and its socket listens."""

    op: Literal["launched"] = "launched"
    member: str
    pid: int


class LaunchFailed(Contract):
    """There is no shim."""

    op: Literal["launch_failed"] = "launch_failed"
    member: str
    message: str


class Gone(Contract):
    """A shim (or the probe) has ended, and nothing that it had started is alive."""

    op: Literal["gone"] = "gone"
    member: str
    exit_code: int


class DevicesListed(Contract):
    """The devices of this host."""

    op: Literal["devices_listed"] = "devices_listed"
    devices: tuple[DeviceReport, ...]
    flaws: dict[str, str] = Field(default_factory=dict)
    """What JAX said of platforms that it has no device of."""


class DeviceTried(Contract):
    """What became of it: the flaw, or None for the right answer."""

    op: Literal["device_tried"] = "device_tried"
    name: str
    flaw: str | None


Request = Start | ListDevices | TryDevice
Reply = Ready | Unready | Launched | LaunchFailed | Gone | DevicesListed | DeviceTried
ForLauncher: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="op")])
FromLauncher: TypeAdapter[Reply] = TypeAdapter(Annotated[Reply, Field(discriminator="op")])


STACK_SIGNAL = signal.SIGRTMAX - 3
"""Makes the runner write its stacks: one that programs do not use; SIGUSR1 and SIGUSR2 they do."""
RENDEZVOUS_S = 300.0
"""For the processes of a gang to come together, where the user sets no limit."""


class StopCause(StrEnum):
    """Why the program is made to stop. Each is an EndReason, which the end gets."""

    CANCELLED = EndReason.CANCELLED.value
    PREEMPTED = EndReason.PREEMPTED.value
    FENCED = EndReason.FENCED.value
    LOST = EndReason.LOST.value
    SPOOL_FULL = EndReason.SPOOL_FULL.value
    PEER_LOST = EndReason.PEER_LOST.value
    HANG = EndReason.HANG.value


class Alive(Contract):
    """The server acknowledged a heartbeat that was sent at this CLOCK_BOOTTIME: the deadline moves on."""

    op: Literal["alive"] = "alive"
    sent_at: float


class Stop(Contract):
    """Ask the program to stop, TERM after `grace_s`, KILL 10 s later; without `grace_s` KILL at once.

    For HANG its stacks come first, and KILL when the rest of the gang had time for theirs.
    """

    op: Literal["stop"] = "stop"
    cause: StopCause
    grace_s: Annotated[float, Field(ge=0)] | None = None


class Acked(Contract):
    """The server holds everything up to `seq`."""

    op: Literal["acked"] = "acked"
    seq: Annotated[int, Field(ge=0)]


class PeerWaits(Contract):
    """Whether another member of the gang waits for its telemetry to be taken, so that this one may wait for it."""

    op: Literal["peer_waits"] = "peer_waits"
    waits: bool


class Look(Contract):
    """Look where the program stands, and tell: somebody asked at `asked_at`."""

    op: Literal["look"] = "look"
    asked_at: Timestamp


class Looked(Contract):
    """Where the program stands."""

    op: Literal["looked"] = "looked"
    standing: MemberStanding


class ProgramStatus(Contract):
    """What the shim last heard from the program's process; times are CLOCK_BOOTTIME."""

    activity: Activity
    advances: int
    collectives: int
    changed_at: float
    heard_at: float
    overdue: bool
    decided_at: float | None = None
    """When it was taken for hung: where it was then is what counts."""
    spooled_seq: int = 0
    output_bytes: int = 0

    def tick(self, now: float) -> MemberTick:
        """For the server, whose clock is another."""
        now = now if self.decided_at is None else self.decided_at
        return MemberTick(
            activity=self.activity,
            advances=self.advances,
            collectives=self.collectives,
            idle_s=max(0.0, now - self.changed_at),
            silent_s=max(0.0, now - self.heard_at),
            overdue=self.overdue,
            spooled_seq=self.spooled_seq,
            output_bytes=self.output_bytes,
        )


class Spooled(Contract):
    """Records up to `seq` can be read from the spool; where the program is."""

    op: Literal["spooled"] = "spooled"
    seq: int
    step: int | None = None
    last_collective: str | None = None
    status: ProgramStatus | None = None
    can_look: bool = False
    """Whether it knows Look: a shim that an older worker has started would hang up."""


class Ended(Contract):
    """The member has ended; `end.json` says the same, unless the disk was full."""

    op: Literal["ended"] = "ended"
    ending: Ending


Wish = Alive | Stop | Acked | PeerWaits | Look
News = Spooled | Ended | Looked
FromAgent: TypeAdapter[Wish] = TypeAdapter(Annotated[Wish, Field(discriminator="op")])
FromShim: TypeAdapter[News] = TypeAdapter(Annotated[News, Field(discriminator="op")])


class Tick(Contract):
    """Where the program is; see MemberTick for the words."""

    kind: Literal["tick"] = "tick"
    activity: Literal["rendezvous", "own_code", "compiling", "in_step", "finishing"]
    advances: Annotated[int, Field(ge=0, lt=2**53)]
    collectives: Annotated[int, Field(ge=0, lt=2**53)] = 0
    waits: Annotated[int, Field(ge=0, lt=2**53)] = 0
    """How often it looked whether the other members of its gang have done their part of what they do together."""
    usual_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """95 of 100 times between steps are shorter; None before there are two steps."""
    devices: Annotated[tuple[DeviceMemory, ...], Field(fail_fast=True), AtMost(MAX_DEVICES_USED)] = ()
    """Memory of the member's own devices, where JAX counts it."""

    @property
    def position(self) -> tuple[str, int, int, int]:
        """What changes when the program comes further, or waits for others on purpose."""
        return self.activity, self.advances, self.collectives, self.waits


class ToldProgram(Contract):
    """What a step of the program runs; told before the first of them, each once; the tally counts them."""

    kind: Literal["program"] = "program"
    program: StepProgram


class Failure(Contract):
    """The runner's own account of why it will exit with code 1. Believed only together with that exit code."""

    kind: Literal["failed"] = "failed"
    reason: Literal[
        EndReason.PROGRAM_ERROR,
        EndReason.BAD_PROGRAM,
        EndReason.BAD_RESULT,
        EndReason.OUT_OF_MEMORY,
        EndReason.START_FAILED,
        EndReason.CANCELLED,
        EndReason.PEER_LOST,
        EndReason.GANG_INCOMPLETE,
        EndReason.VERSIONS_DIFFER,
        EndReason.PROGRAMS_DIFFER,
        EndReason.DIVERGED,
    ]
    message: Annotated[Text, Field(max_length=8_000)] = ""
