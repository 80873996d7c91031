"""What a member's program does: where it stands, and the program that a step of it runs, with its collectives."""

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from drumline.contracts.base import AtMost, Contract, Finite, Text

MAX_COLLECTIVES = 256
MAX_PROGRAMS = 8
"""Programs of a member that are told whole; further ones without their collectives."""
_Count = Annotated[int, Field(ge=0, lt=2**53)]
_Word = Annotated[Text, StringConstraints(max_length=100)]
WAITING_FOR_TELEMETRY: Final = "waiting_for_telemetry"
"""What a program does, and the phase of its member, while it is made to wait until its telemetry is taken (P12)."""
Activity = Literal["rendezvous", "own_code", "compiling", "in_step", "finishing", "waiting_for_telemetry"]
"""What a program does. `in_step` is also to wait for what a step computes; `own_code` is what it does between steps;
`waiting_for_telemetry`: its spool is full, and what it logs is taken again when the server has taken some (P12)."""


class MemberTick(Contract):
    """Where a member's program was when its process last told its shim, and since when (rule P15)."""

    activity: Activity
    advances: Annotated[int, Field(ge=0, lt=2**53)]
    """How often the program came further: steps that returned, and logs."""
    collectives: Annotated[int, Field(ge=0, lt=2**53)] = 0
    """Collectives that the engine has left."""
    idle_s: Annotated[Finite, Field(ge=0, lt=2**53)]
    """Since it last came further, or began to do something else."""
    silent_s: Annotated[Finite, Field(ge=0, lt=2**53)]
    """Since the process last told. Over some seconds: it is stopped, or a call holds its interpreter."""
    overdue: bool = False
    """Whether its shim takes it for hung, dumps its stacks and ends it."""
    spooled_seq: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    """Seq of the newest event that its host has; what the server lacks of it is lost if the host is."""
    output_bytes: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    """How much its program has written so far."""


class ProgramCollective(Contract):
    """One collective of a program, as the engine traced it."""

    name: Annotated[Text, StringConstraints(max_length=200)]
    kind: _Word
    op: _Word | None = None
    dtype: _Word
    shape: Annotated[tuple[_Count, ...], Field(fail_fast=True), AtMost(64)]
    size_bytes: _Count
    """What each replica puts in each time."""
    times: _Count | None = None
    """How often it happens in a step; None where that depends on values."""


class CollectiveTotal(Contract):
    """All collectives of a program that are alike, those beyond the listed ones too."""

    kind: _Word
    op: _Word | None = None
    crosses: bool
    operations: _Count
    times: _Count
    """How often they happen in a step, together."""
    size_bytes: _Count
    """What each replica puts in in a step, together."""
    varying: _Count = 0
    """How many of `operations` happen as often as values say: those are in neither `times` nor `size_bytes`."""


class DispatchedProgram(Contract):
    """The program of a step of the strategy."""

    name: Annotated[Text, StringConstraints(max_length=200)]
    """Of the function."""
    digest: Annotated[Text, StringConstraints(max_length=64)]
    """The same in every member that traced the same."""
    executor: _Word
    collectives: Annotated[tuple[ProgramCollective, ...], Field(fail_fast=True), AtMost(MAX_COLLECTIVES)] = ()
    """In order; the first 256."""
    more_collectives: _Count = 0


class StepCollective(ProgramCollective):
    """One, and whom it joins. What a member says of where it stands goes without: servers of before refuse that."""

    crosses: bool = False
    """Whether it joins replicas of several members."""


class StepProgram(DispatchedProgram):
    """A program, and what it exchanges in all."""

    collectives: Annotated[tuple[StepCollective, ...], Field(fail_fast=True), AtMost(MAX_COLLECTIVES)] = ()
    totals: Annotated[tuple[CollectiveTotal, ...], Field(fail_fast=True), AtMost(64)] = ()

    def unlisted(self) -> "StepProgram":
        """The same without its collectives, which are counted."""
        left = self.more_collectives + len(self.collectives)
        return self.model_copy(update={"collectives": (), "more_collectives": left})
