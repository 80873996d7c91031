"""Arrays of a reduction as far as they are told and kept."""

import math
import zlib
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from drumline.contracts.base import AtMost, Contract, Finite, Text

MAX_ARRAY_VALUES = 1_024
MAX_DIMENSIONS = 64
MAX_STRIP_BUCKETS = 64
MAX_STRIPS = 32
"""Replicas of a reduction whose strips are kept; of more, only those of the result."""
MAX_WHOLE_ARRAY_BYTES = 64 * 1024
MAX_WHOLE_BYTES = 9 * MAX_WHOLE_ARRAY_BYTES
"""Of all arrays of a reduction: parts of eight replicas and the result. In base64 it fits in a batch of telemetry."""
MAX_WHOLE_TEXT = MAX_WHOLE_BYTES * 4 // 3 + 4_096
"""Of these in base64: what zlib cannot make smaller becomes a little longer by it."""
MAX_WHOLE_RUN_BYTES = 64 * 1024 * 1024
"""As they are stored, compressed, of all reductions of an attempt's process."""
ELEMENT_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}
"""By the types whose elements are kept bit for bit."""
NotWhole = Literal["array_bytes", "all_bytes", "type", "several_steps", "between", "run_bytes"]
WHY_NOT_WHOLE: dict[NotWhole, str] = {
    "array_bytes": "an array has more than 64 KiB",
    "all_bytes": "all arrays together have more than 576 KiB",
    "type": "elements of this type are not kept bit for bit",
    "several_steps": "a call of run_steps keeps them of one step, and this is another",
    "between": "outside of steps they are kept only as often as large arrays of steps are recorded",
    "run_bytes": "the attempt has kept 64 MiB of them",
}
"""Why not every element of a reduction was kept."""

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


def unpack_arrays(packed: bytes, arrays: Sequence[ArraySummary]) -> bytes:
    """The elements of all `arrays`, one after the other, row-major and little-endian: `packed` by `zlib`.

    Raises ValueError for other bytes than those of these arrays, and for more than may be kept.
    """
    size = whole_bytes(arrays)
    reader = zlib.decompressobj()
    try:
        raw = reader.decompress(packed, size + 1)
    except zlib.error as error:
        raise ValueError(f"the elements are not compressed by zlib: {error}") from None
    if len(raw) != size or not reader.eof or reader.unused_data:
        raise ValueError(f"holds other than the {size} bytes that its arrays have")
    return raw


def whole_bytes(arrays: Sequence[ArraySummary]) -> int:
    """Of all elements. Raises ValueError, with why, where they may not be kept whole."""
    sizes = []
    for array in arrays:
        if array.dtype not in ELEMENT_BYTES:
            raise ValueError(f"elements of type {array.dtype} are not kept; those of {', '.join(ELEMENT_BYTES)} are")
        sizes.append(math.prod(array.shape) * ELEMENT_BYTES[array.dtype])
    if max(sizes, default=0) > MAX_WHOLE_ARRAY_BYTES or sum(sizes) > MAX_WHOLE_BYTES:
        raise ValueError(
            f"arrays of up to {max(sizes)} and together {sum(sizes)} bytes are not kept whole; "
            f"at most {MAX_WHOLE_ARRAY_BYTES} each and {MAX_WHOLE_BYTES} in all"
        )
    return sum(sizes)


def read_base64(text: str) -> bytes:
    """Raises ValueError for what is none."""
    try:
        return a2b_base64(text, strict_mode=True)
    except Base64Error as error:
        raise ValueError(f"is no base64: {error}") from None


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
