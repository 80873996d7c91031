"""Arrays of a reduction as far as they are told and kept."""

from typing import Annotated

from pydantic import Field, StringConstraints

from drumline.contracts.base import AtMost, Contract, Finite, Text

MAX_ARRAY_VALUES = 1_024
MAX_DIMENSIONS = 64
MAX_STRIP_BUCKETS = 64
MAX_STRIPS = 32
"""Replicas of a reduction whose strips are kept; of more, only those of the result."""

Shape = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**53)], ...], Field(fail_fast=True), AtMost(MAX_DIMENSIONS)]


class ArrayStrip(Contract):
    """An array, row-major, in buckets of ceil(size / 64) elements each, the last of those that are left.

    Finite elements only, in five digits of the largest: `None` where a bucket has none.
    """

    min: Annotated[tuple[Finite | None, ...], Field(fail_fast=True), AtMost(MAX_STRIP_BUCKETS)]
    max: Annotated[tuple[Finite | None, ...], Field(fail_fast=True), AtMost(MAX_STRIP_BUCKETS)]
    not_finite: (
        Annotated[tuple[Annotated[int, Field(ge=0, lt=2**53)], ...], Field(fail_fast=True), AtMost(MAX_STRIP_BUCKETS)]
        | None
    ) = None
    """How many of each are NaN or infinite; `None` where all of the array are finite."""


class ArraySummary(Contract):
    """An array as far as it is kept: every value up to 1024 elements, statistics always."""

    shape: Shape
    dtype: Annotated[Text, StringConstraints(max_length=40)]
    values: Annotated[tuple[float, ...], Field(fail_fast=True), AtMost(MAX_ARRAY_VALUES)] | None = None
    """Row-major, `None` where the array has more than 1024 elements."""
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    norm: float | None = None
    nan_count: Annotated[int, Field(ge=0, lt=2**53)] = 0
    inf_count: Annotated[int, Field(ge=0, lt=2**53)] = 0
    checksum: Annotated[Text, StringConstraints(max_length=64)] = ""
    strip: ArrayStrip | None = None
    """Of an array whose values are not kept."""
    cosine: Annotated[Finite, Field(ge=-1, le=1)] | None = None
    """Of a replica's part to the result, over the elements that are finite in both; `None` of scalars, of parts that
    have not the result's shape, and where one of both is zero."""


class ReductionSampling(Contract):
    """How often the large arrays that a step reduces are recorded, and what that costs."""

    every: Annotated[int, Field(ge=1, lt=2**53)]
    """Calls of `strategy.run`."""
    is_chosen: bool
    """By the runner, from what it costs; else by `record.large_reductions_every`."""
    extra_s: Annotated[Finite, Field(ge=0, lt=2**31)] | None = None
    """What recording adds to one call; `None` where that is not measured, or not yet."""
    plain_s: Annotated[Finite, Field(gt=0, lt=2**31)] | None = None
    """What a step takes without it."""
