"""Batches and sweeps as they are asked for: many runs in one request."""

import math
from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, JsonValue, StringConstraints, Tag, model_validator

from drumline.contracts.base import (
    MAX_VALUES,
    MOST_NAMES,
    AtMost,
    Contract,
    FewValues,
    Finite,
    ParameterName,
    Parameters,
    Title,
)
from drumline.contracts.spec import RunSubmit

MAX_BATCH = 10_000
"""Runs of one batch."""

Values = Annotated[list[JsonValue], AtMost(MAX_VALUES), FewValues]
BatchName = Annotated[Title, StringConstraints(max_length=200)]


class Range(Contract):
    """Numbers from `low` to `high`, both included, to draw from: evenly, or evenly by their logarithm."""

    low: Finite
    high: Finite
    scale: Literal["linear", "log"] = "linear"
    whole: bool = False
    """Only whole numbers."""

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"goes from {self.low:g} to {self.high:g}; low must be less than high")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"begins at {self.low:g}; on a log scale low must be greater than 0")
        if not math.isfinite(self.high - self.low):
            raise ValueError(f"goes from {self.low:g} to {self.high:g}; that is wider than a number can hold")
        return self


class GridSweep(Contract):
    """Every combination of the values; the last parameter changes fastest."""

    kind: Literal["grid"] = "grid"
    parameters: Annotated[dict[ParameterName, Values], AtMost(MOST_NAMES)]


class ListSweep(Contract):
    """The points as they are, one run each."""

    kind: Literal["list"] = "list"
    points: Annotated[list[Parameters], AtMost(MAX_BATCH)]


def _kind_of_space(space: object) -> str:
    return "range" if isinstance(space, (dict, Range)) else "values"


Space = Annotated[
    Annotated[Values, Tag("values")] | Annotated[Range, Tag("range")],
    Discriminator(_kind_of_space),
]
"""What to draw from."""


class RandomSweep(Contract):
    """`runs` different points drawn at random; the same seed draws the same points."""

    kind: Literal["random"] = "random"
    parameters: Annotated[dict[ParameterName, Space], AtMost(MOST_NAMES)]
    runs: Annotated[int, Field(ge=1, le=MAX_BATCH)]
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 0


SweepSpec = Annotated[GridSweep | ListSweep | RandomSweep, Field(discriminator="kind")]


class BatchSubmit(Contract):
    """Body of `POST /runs:batch`: where one of the runs is refused, none is queued."""

    name: BatchName = ""
    runs: Annotated[list[RunSubmit], Field(min_length=1), AtMost(MAX_BATCH)]


class SweepSubmit(Contract):
    """Body of `POST /runs:sweep`: one run whose parameters are varied."""

    name: BatchName = ""
    run: RunSubmit
    """What all runs share; a parameter that is swept does not stand here too."""
    sweep: SweepSpec
