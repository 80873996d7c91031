"""When a member of a gang comes to its collectives, as its worker tells it."""

from typing import Annotated

from pydantic import Field

from drumline.contracts.base import AtMost, Contract

MAX_ARRIVAL_POINTS = 8
"""Collectives between the ends of two calls of `strategy.run`; calls with more are not sampled."""
MAX_ARRIVAL_SAMPLES = 64

_Count = Annotated[int, Field(ge=0, lt=2**53)]


class ArrivalPoint(Contract):
    """One collective of a sampled call, on the member's own clock, in microseconds.

    From the end of the collective before it until the member came to this one: `input_us` waiting for the next batch,
    `dispatch_us` within `strategy.run`, `own_code_us` what is left. `rest_us`: from then until its devices were done
    with it, with what the member waited for others in agreeing on its next batch.
    """

    input_us: _Count
    own_code_us: _Count
    dispatch_us: _Count
    rest_us: _Count


class ArrivalSample(Contract):
    """A call of `strategy.run`: the reductions since the call before it, then its own program."""

    call: _Count
    points: Annotated[tuple[ArrivalPoint, ...], Field(min_length=1, fail_fast=True), AtMost(MAX_ARRIVAL_POINTS)]
