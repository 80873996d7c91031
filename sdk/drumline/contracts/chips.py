"""A program compiled for chips that are not there: what their own compiler says of it. Bytes are of each device."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from drumline.contracts.base import AtMost, Finite, Refusal, Reply, Text

MAX_CHIP_PROGRAMS = 20
MAX_EXCHANGES = 64
"""Of a program, that a plan lists; the rest is counted."""
MAX_GROUP = 64
"""Devices of a group that are named; the rest is counted."""
MAX_ALLOCATIONS = 10

SliceName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9]{1,12}(:\d{1,4}(x\d{1,4}){0,2}|-\d{1,6})$", max_length=32),
    Refusal("names no slice; write one such as 'v5e:16x16', an accelerator type such as 'v4-32', or GPUs as 'h100:8'"),
]
"""A TPU slice by its chips, `v5e:16x16`, or by its accelerator type, `v4-32`; or GPUs, `h100:8`."""
ParameterName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w{0,99}$", max_length=100)]
_Count = Annotated[int, Field(ge=0, lt=2**53)]
_Name = Annotated[Text, StringConstraints(max_length=300)]
_Word = Annotated[Text, StringConstraints(max_length=60)]
_Line = Annotated[Text, StringConstraints(max_length=500)]
_Number = Annotated[Finite, Field(ge=0, le=1e30)]


Verdict = Literal["fits", "does_not_fit", "not_known"]


class ChipMemory(Reply):
    """What a compiled step takes while it runs. `alias`: arguments whose place outputs take; `peak`: all together."""

    argument: _Count
    output: _Count
    temp: _Count
    alias: _Count
    code: _Count
    peak: _Count


class ChipAllocation(Reply):
    """Something that takes memory."""

    name: _Name
    shape: Annotated[tuple[_Count, ...], Field(fail_fast=True), AtMost(32)]
    dtype: _Word
    size_bytes: _Count


class ChipExchange(Reply):
    """A collective as the compiler left it: those of the step may have been joined, cut or added to."""

    kind: _Word
    size_bytes: _Count
    """Of its result."""
    groups: _Count
    """How many groups of devices exchange, each on its own; 0 where the compiler names none."""
    group_size: _Count
    group: Annotated[tuple[_Count, ...], Field(fail_fast=True), AtMost(MAX_GROUP)]
    """The first group's devices, numbered as in the strategy's mesh."""
    name: _Name


class ChipProgram(Reply):
    """A step's program. Where it does not fit `memory` is `None`, and `needed_bytes` is what the compiler says."""

    first_call: _Count
    steps: Annotated[int, Field(ge=1, lt=2**53)] = 1
    """That one call does at most: more than 1 of `run_steps`."""
    rows_per_replica: _Count | None
    fits: bool
    gross: bool
    """Its arguments alone are too much, so that nothing was compiled."""
    argument_bytes: _Count
    needed_bytes: _Count | None
    memory: ChipMemory | None
    largest: Annotated[tuple[ChipAllocation, ...], Field(fail_fast=True), AtMost(MAX_ALLOCATIONS)]
    exchanges: Annotated[tuple[ChipExchange, ...], Field(fail_fast=True), AtMost(MAX_EXCHANGES)]
    exchange_count: _Count
    flops: _Number | None
    """Of a step on each device, like the next two by the compiler's own model."""
    bytes_accessed: _Number | None
    optimal_s: _Number | None
    message: Annotated[Text, StringConstraints(max_length=2_000)]
    seconds: _Number
    """What compiling took."""


class PlannedStop(Reply):
    """Where the program could go no further without a number, or with what can't be compiled for absent devices."""

    why: _Line
    file: _Line
    line: _Count
    code: _Line


class BatchSearch(Reply):
    """The largest batch that fits, looked for in the values of a parameter of the program."""

    parameter: ParameterName
    value: _Count
    """Of this plan."""
    largest: _Count | None = None
    """The largest value that was seen to fit."""
    too_large: _Count | None = None
    """The smallest value that was seen not to fit; `None` where the search ended before one."""
    tries: _Count = 1
    ended: _Line = ""
    """Why the search ended before both were neighbours."""


class ChipPlan(Reply):
    """What the compiler of one kind of chip says; of no other chip."""

    slice: SliceName
    kind: _Word
    """As JAX calls such a chip."""
    devices: _Count
    hosts: _Count
    compiler: _Name
    available_bytes: _Count | None
    """What a program may use of a device's memory, by the compiler."""
    programs: Annotated[tuple[ChipProgram, ...], Field(fail_fast=True), AtMost(MAX_CHIP_PROGRAMS)]
    fits: bool
    """Whether all of them do."""
    stopped: PlannedStop | None
    batch: BatchSearch | None = None
    verdict: Verdict = "not_known"
    """On the whole program, made of the above: of one that stopped before its end only what was compiled is known."""

    @model_validator(mode="before")
    @classmethod
    def _judge(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        fitting = "fits" if value.get("stopped") is None else "not_known"
        return {**value, "verdict": fitting if value.get("fits") else "does_not_fit"}
