"""What agent, shim and runner say to each other: over the shim's socket, and over the runner's."""

import signal
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from drumline.contracts.base import Contract, Text, Timestamp
from drumline.contracts.events import Activity, MemberTick
from drumline.contracts.reasons import EndReason
from drumline.contracts.stacks import DispatchedProgram, MemberStanding
from drumline_worker.host.rundir import Ending

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

    @property
    def position(self) -> tuple[str, int, int, int]:
        """What changes when the program comes further, or waits for others on purpose."""
        return self.activity, self.advances, self.collectives, self.waits


class ToldProgram(Contract):
    """What a step of the program runs; told before the first of them, each once; the tally counts them."""

    kind: Literal["program"] = "program"
    program: DispatchedProgram


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
