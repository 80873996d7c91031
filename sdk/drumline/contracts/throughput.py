"""What a step is made of, as engine and worker measure it."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from drumline.contracts.base import Contract, Text
from drumline.contracts.profiles import Unmeasured

_Amount = Annotated[float, Field(ge=0, le=1e300)]


class SampledTimes(Contract):
    """What devices do in a step, mean over those of the first process, in milliseconds; from a trace of a step."""

    step: Annotated[int, Field(ge=0, lt=2**53)]
    """The program's."""
    span_ms: _Amount
    """From the first operation of any device to the last one's end."""
    computing_ms: _Amount
    collective_ms: _Amount
    """Computing beside it, `both_ms`, included."""
    both_ms: _Amount
    idle_ms: _Amount


class Throughput(Contract):
    """What the steps behind the present rate are made of. Times are of one step, in milliseconds.

    `dispatch_ms`: within `strategy.run`, without waiting for devices. HFU and MFU are shares of what the chip can do at
    most: dense bfloat16 operations. None is what is not known; of HFU and MFU `..._unknown` says why.
    """

    step_ms: _Amount | None = None
    input_wait_ms: _Amount | None = None
    dispatch_ms: _Amount | None = None
    tokens_per_s: _Amount | None = None
    flops_per_s: _Amount | None = None
    """Of each device, by XLA's analysis of the compiled program."""
    chip: Annotated[Text, StringConstraints(max_length=100)] | None = None
    """What JAX calls the devices; None where they are of several kinds."""
    hfu_percent: _Amount | None = None
    hfu_unknown: Literal["chip", "loops", "kernels", "executor", "compiler"] | None = None
    mfu_percent: _Amount | None = None
    """Where the program told `flops_per_example`."""
    mfu_unknown: Literal["chip", "examples"] | None = None
    sampled: SampledTimes | None = None
    """Of the newest call that was traced; `record.profile_every` says which are."""
    sampled_unknown: Literal["pending", "busy"] | Unmeasured | None = None
    """None also where none is to be traced. Pending: none was yet. Busy: the program traces itself."""
