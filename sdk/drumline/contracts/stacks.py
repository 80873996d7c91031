"""Where the processes of a run stand, told on demand: stacks, phase, the last program and its collectives."""

from typing import Annotated

from pydantic import Field, StringConstraints

from drumline.contracts.base import Contract, Finite, IncarnationId, MemberId, Reply, Text, Timestamp
from drumline.contracts.programs import Activity, DispatchedProgram

STACKS_HEADING = "=== stacks of the program's threads"
STACKS_ENDING = "=== end of stacks"
"""Lines of the stream `system` around what a program that hangs was doing."""
MAX_STACKS = 128 * 1024
"""Characters of each kind of stacks; of more the beginning is kept."""
_Count = Annotated[int, Field(ge=0, lt=2**53)]


class MemberStanding(Contract):
    """What a member's shim finds when it is asked."""

    asked_at: Timestamp
    """The request that it answers."""
    activity: Activity
    advances: _Count
    """How often the program came further: steps that returned, and logs."""
    idle_s: Annotated[Finite, Field(ge=0, lt=2**53)]
    silent_s: Annotated[Finite, Field(ge=0, lt=2**53)]
    """Since its process last told where it is; over some seconds it is stopped, or a call holds its interpreter."""
    step: _Count | None = None
    """The call of `strategy.run` that was dispatched last, from 0."""
    program: DispatchedProgram | None = None
    """What that call dispatched."""
    python: Annotated[Text, StringConstraints(max_length=MAX_STACKS)] = ""
    threads: Annotated[Text, StringConstraints(max_length=MAX_STACKS)] = ""
    """What the kernel says of its threads: state, what they sleep in, and where in which library they stand."""
    missing: Annotated[Text, StringConstraints(max_length=1_000)] = ""
    """Why there are no stacks of Python."""


class StacksReport(Contract):
    """Body of `POST /worker/members/{id}/stacks`."""

    fence: Annotated[int, Field(ge=1, lt=2**53)]
    incarnation: IncarnationId
    standing: MemberStanding


class StacksRequest(Reply):
    """In a heartbeat's reply: somebody wants to know where a member stands."""

    member: MemberId
    asked_at: Timestamp


class MemberStacks(Reply):
    """A member of a run that lives, and where it stands if it has answered."""

    member: MemberId
    rank: int
    host_name: str
    answered_at: Timestamp | None = None
    standing: MemberStanding | None = None
    missing: str = ""
    """Why there is no answer, or not yet."""


class RunStacks(Reply):
    """The members of a run's live attempt by rank, and when they were last asked."""

    asked_at: Timestamp | None = None
    asked_by: str | None = None
    """The name of who asked; None where nobody did or knows."""
    members: tuple[MemberStacks, ...] = ()
    is_complete: bool = False
    """Whether all members that were asked have answered."""
