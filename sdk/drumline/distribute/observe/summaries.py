"""How arrays are told: as a human sees them, and how often the large ones of all-reduces are recorded.

All values of small arrays, else statistics, a strip, and the cosine to the result. Large ones are recorded as often as
was asked for, or as seldom as what it costs demands.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import numpy as np

#: Values are shown in full up to this many elements; larger arrays are summarized.
MAX_LISTED_ELEMENTS = 1024
#: Arrays of a step are brought to the host whole up to so many bytes each, and so many of all replicas and the result.
MAX_WHOLE_ARRAY_BYTES = 64 * 1024
MAX_WHOLE_BYTES = 9 * MAX_WHOLE_ARRAY_BYTES
#: Of a strip.
MAX_BUCKETS = 64
#: Of the words before those of the strip: mean, norm and cosine, then NaN count, infinity count and checksum.
_HEAD, _FLOATS = 6, 3


@dataclass(frozen=True, slots=True)
class ArrayStrip:
    """An array, row-major, in at most 64 buckets of :func:`bucket_width` elements; the last may have fewer.

    ``min`` and ``max`` are of the finite elements of each, None where there are none. ``not_finite``: how many are NaN
    or infinite; None where all of the array are finite.
    """

    min: list[float | None]
    max: list[float | None]
    not_finite: list[int] | None


@dataclass(frozen=True, slots=True)
class ArraySummary:
    """An array as a human sees it; ``values`` is the flat list when there are at most 1024 elements, ``strip`` is there
    when there are more. ``cosine``: of what a replica put in to the result of its reduction, from -1 to 1.
    """

    shape: tuple[int, ...]
    dtype: str
    values: list[Any] | None
    min: float | None
    max: float | None
    mean: float | None
    norm: float | None
    nan_count: int
    inf_count: int
    checksum: int
    strip: ArrayStrip | None = None
    cosine: float | None = None


@dataclass(frozen=True, slots=True)
class SummaryOnDevice:
    """A large array inside a step, which the step itself summarized; :func:`summarize` reads it.

    ``words``: uint32[6 + 3 * buckets], the bits of float32 mean, norm and cosine, then NaN count, infinity count and a
    checksum, then the bits of each bucket's float32 min, those of each max, and how many of each are not finite.
    """

    shape: tuple[int, ...]
    dtype: str
    words: Any

    def to_host(self) -> ArraySummary:
        """The summary; waits for the step."""
        words = np.asarray(self.words)
        mean, norm, cosine = (float(value) for value in words[:_FLOATS].view(np.float32))
        counts = int(words[3]), int(words[4]), int(words[5])
        lows, highs, not_finite = words[_HEAD:].reshape(3, -1)
        low, high = lows.view(np.float32), highs.view(np.float32)
        strip = _to_strip(low, high, not_finite if any(counts[:2]) else None)
        if low.min() > high.max():  # nothing finite
            return ArraySummary(self.shape, self.dtype, None, None, None, None, None, *counts, strip)
        least, most = float(low.min()), float(high.max())
        own_cosine = None if math.isnan(cosine) else max(-1.0, min(1.0, cosine))
        return ArraySummary(self.shape, self.dtype, None, least, most, mean, norm, *counts, strip, own_cosine)


def is_brought_whole(nbytes: int, num_replicas: int) -> bool:
    """Whether an all-reduce of arrays of so many bytes is recorded with every element, where large ones are."""
    return nbytes <= MAX_WHOLE_ARRAY_BYTES and nbytes * (num_replicas + 1) <= MAX_WHOLE_BYTES


def bucket_width(size: int) -> int:
    """Elements of each bucket of an array's strip."""
    return max(1, -(-size // MAX_BUCKETS))


def summarize(value: Any, *, listed: bool = True) -> ArraySummary:
    """Pulls ``value`` to the host and describes it. Statistics cover finite elements only; None where there are none.

    Of equal arrays of one record the checksums are equal. Not ``listed``: with a strip, whatever its size.
    """
    if isinstance(value, SummaryOnDevice):
        return value.to_host()
    array = np.asarray(value)
    checksum = _checksum(array) if array.dtype != object else 0
    values = array.ravel().tolist() if listed and array.size <= MAX_LISTED_ELEMENTS else None
    if not _is_number(array):
        return ArraySummary(array.shape, array.dtype.name, values, None, None, None, None, 0, 0, checksum)
    wide = _widen(array)
    is_finite = np.isfinite(wide)
    finite = wide.ravel() if is_finite.all() else wide[is_finite]
    low, high, mean, norm = (
        (float(finite.min()), float(finite.max()), float(finite.mean()), _norm(finite))
        if finite.size
        else (None, None, None, None)
    )
    nan_count = int(np.isnan(wide).sum()) if finite.size < wide.size else 0
    counts = nan_count, wide.size - finite.size - nan_count
    strip = _strip(wide) if values is None and array.size else None
    return ArraySummary(array.shape, array.dtype.name, values, low, high, mean, norm, *counts, checksum, strip)


def summarize_reduction(record: ReductionRecord, *, listed: bool = True) -> tuple[list[ArraySummary], ArraySummary]:
    """What went in and came out. Each input has its cosine where it and the result are arrays of the same shape."""
    together = _summarize_together(record) if listed else None
    if together is not None:
        return together[:-1], together[-1]
    result = summarize(record.result, listed=listed)
    inputs = []
    for value in record.inputs:
        one = summarize(value, listed=listed)
        if one.cosine is None and not isinstance(value, SummaryOnDevice) and record.axis is None:
            one = replace(one, cosine=_cosine(value, one, record.result, result))
        inputs.append(one)
    return inputs, result


def _summarize_together(record: ReductionRecord) -> list[ArraySummary] | None:
    """As :func:`summarize_reduction`, the result last, in a fraction of the calls of numpy: for small finite arrays
    of one shape and type, such as losses. These are recorded most often. None for others.
    """
    values = (*record.inputs, record.result)
    if record.axis is not None or any(isinstance(value, SummaryOnDevice) for value in values):
        return None
    arrays = [np.asarray(value) for value in values]
    size, dtype, shape = arrays[0].size, arrays[0].dtype, arrays[0].shape
    is_small = 1 < size <= MAX_LISTED_ELEMENTS and np.issubdtype(dtype, np.floating)
    if not is_small or any(array.dtype != dtype or array.shape != shape for array in arrays):
        return None
    wide = np.stack(arrays).reshape(len(arrays), -1).astype(np.float64)
    if not np.isfinite(wide).all():
        return None
    largest = np.abs(wide).max(axis=1)
    scaled = wide / np.where(largest, largest, 1.0)[:, None]
    norms = np.sqrt((scaled * scaled).sum(axis=1)) * largest
    units = wide / np.where(norms, norms, 1.0)[:, None]
    cosines = [*(units[:-1] * units[-1]).sum(axis=1).clip(-1.0, 1.0).tolist(), None]
    has_cosine = (norms > 0) & (norms[-1] > 0)
    columns = (arrays, *(each.tolist() for each in (wide.min(axis=1), wide.max(axis=1), wide.mean(axis=1), norms)))
    return [
        ArraySummary(
            shape, dtype.name, array.ravel().tolist(), low, high, mean, norm, 0, 0, _checksum(array),
            cosine=cosine if is_there else None,
        )
        for array, low, high, mean, norm, cosine, is_there in zip(*columns, cosines, has_cosine.tolist(), strict=True)
    ]  # fmt: skip


def _checksum(array: Any) -> int:
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def _is_number(array: Any) -> bool:
    return np.issubdtype(array.dtype, np.number) or array.dtype == bool or array.dtype.name == "bfloat16"


def _widen(array: Any) -> Any:
    with np.errstate(invalid="ignore"):  # a NaN that signals
        return np.abs(array) if np.iscomplexobj(array) else array.astype(np.float64)


def _norm(finite: Any) -> float:
    largest = float(np.abs(finite).max())
    if not largest:
        return 0.0
    scaled = finite / largest
    return math.sqrt(_dot(scaled, scaled)) * largest


def _dot(one: Any, other: Any) -> float:
    """Not by BLAS, which has threads of its own come together for it while the program's step has the processors."""
    return float((one * other).sum())


def _cosine(value: Any, own: ArraySummary, reduced: Any, result: ArraySummary) -> float | None:
    """Over the elements that are finite in both; None of scalars, other shapes and arrays of zeros."""
    one, other = np.asarray(value), np.asarray(reduced)
    if one.shape != other.shape or one.size < 2 or not _is_number(one) or np.iscomplexobj(one):
        return None
    one, other, norms = _widen(one).ravel(), _widen(other).ravel(), (own.norm, result.norm)
    if own.nan_count or own.inf_count or result.nan_count or result.inf_count:
        both = np.isfinite(one) & np.isfinite(other)
        if not both.any():
            return None
        one, other = one[both], other[both]
        norms = _norm(one), _norm(other)
    if not norms[0] or not norms[1]:
        return None
    return max(-1.0, min(1.0, _dot(one / norms[0], other / norms[1])))


def _strip(wide: Any) -> ArrayStrip:
    flat = wide.ravel()
    starts = np.arange(0, flat.size, bucket_width(flat.size))
    finite = np.isfinite(flat)
    not_finite = None if finite.all() else np.add.reduceat(~finite, starts, dtype=np.int64)
    low = np.minimum.reduceat(np.where(finite, flat, np.inf), starts)
    high = np.maximum.reduceat(np.where(finite, flat, -np.inf), starts)
    return _to_strip(low, high, not_finite)


def _to_strip(low: Any, high: Any, not_finite: Any) -> ArrayStrip:
    """Five digits of the largest: a strip is looked at, and its array's exact extremes stand beside it."""
    there = low <= high
    largest = max(np.abs(low[there]).max(initial=0), np.abs(high[there]).max(initial=0))
    digits = 4 - math.floor(math.log10(largest)) if largest else 0
    return ArrayStrip(
        _rounded(low, there, digits),
        _rounded(high, there, digits),
        None if not_finite is None else [int(count) for count in not_finite],
    )


def _rounded(values: Any, there: Any, digits: int) -> list[float | None]:
    wide = np.where(there, values, 0).astype(np.float64)
    if abs(digits) < 300:  # beyond, a power of ten is no number any more
        wide = np.round(wide, digits)
    rounded = (wide + 0.0).tolist()  # no -0
    return [value if is_there else None for value, is_there in zip(rounded, there.tolist(), strict=True)]


#: Until the cost is known, of the sampled calls every so many record large arrays too.
LARGE_EVERY = 100
#: Of the time of the calls between, what recording may take where the interval is chosen: half of one percent, since
#: what is sent, checked and stored afterwards is not in the measured time.
MOST_SHARE = 0.005
#: And not more often than this, as all of it is kept.
LEAST_CALLS = 100
LEAST_S = 10.0
MOST_CALLS = 1_000_000
#: Calls that are timed, without and with large arrays in turns, after one of each that isn't.
PAIRS = 3
#: Of reductions outside of steps whose large arrays are kept whole.
_MOST_NAMES = 1_000


@dataclass(frozen=True, slots=True)
class Sampling:
    """Every how many calls large arrays are recorded.

    ``is_chosen``: by the engine, from ``extra_s``, which recording takes longer than a call without it (``plain_s``);
    both None where nothing was measured (yet).
    """

    every: int
    is_chosen: bool
    extra_s: float | None = None
    plain_s: float | None = None


@dataclass(frozen=True, slots=True)
class ReductionRecord:
    """What a reduction took in and gave out.

    ``inputs`` holds one raw array per replica and ``counts`` the elements each contributes along ``axis`` (1 each when
    axis is None). ``denominator`` is None for a sum. ``batch_rows``: rows per replica of the batch that a step made the
    inputs from; None where they are the same on every replica, or of no step. ``sampling``: of a large array of a step,
    every how many calls such are recorded. ``keeps_whole``: it is one of those whose every element is to be kept.
    """

    name: str
    step: int
    op: Literal["sum", "mean"]
    axis: int | tuple[int, ...] | None
    inputs: tuple[Any, ...]
    counts: tuple[int, ...]
    denominator: int | None
    result: Any
    origin: Literal["host", "in_step"]
    batch_rows: tuple[int, ...] | None = None
    sampling: Sampling | None = None
    keeps_whole: bool = True


class LargeSampling:
    """Which calls record large arrays. ``given``: the interval that was asked for; None has it chosen.

    The program that records some first is timed, a few of its calls, which wait for their devices and read what they
    recorded. ``agree``: the interval for all processes, from this one's.
    """

    def __init__(self, every: int, given: int | None, agree: Callable[[int], int] = lambda own: own) -> None:
        self._unit = every
        self._agree = agree
        self._is_given = given is not None
        self.told = Sampling(self._whole(every * LARGE_EVERY if given is None else given), given is None)
        #: Whose calls are timed now.
        self.program: object | None = None
        #: Does the call that is sent now record large arrays for its time's sake only?
        self.is_forced = False
        self._times: dict[bool, list[float]] = {False: [], True: []}
        self._whole_at: dict[str, int] = {}

    def is_whole_due(self, name: str, step: int) -> bool:
        """Whether a large array that is reduced outside of steps is to be kept whole: the first of a name, and one each
        interval, at whatever step it is told, as ragged batches come at odd ones.
        """
        last = self._whole_at.get(name)
        if last is None and len(self._whole_at) == _MOST_NAMES:
            return False
        if last is not None and step != last and step < last + self.told.every:
            return False
        self._whole_at[name] = step
        return True

    def is_due(self, step: int) -> bool:
        """Whether this one records large arrays, if it is sampled at all."""
        return step % self.told.every == 0

    def send(self, program: object, call: Callable[[bool], Any], steps: int, *, is_due: bool) -> Any:
        """What ``call`` gives, which is told whether to record large arrays. Some calls are timed, all of them over."""
        if is_due:
            self._note_program(program)
            return call(True)
        if self.program is not program:
            return call(False)
        self.is_forced = is_large = len(self._times[True]) < len(self._times[False])
        began_at = time.perf_counter()
        try:
            result = call(is_large)  # which waits for its devices
        finally:
            self.is_forced = False
        self._note_time(time.perf_counter() - began_at, steps, is_large=is_large)
        return result

    def _note_program(self, program: object) -> None:
        """It records large arrays, and so both its variants are there soon. One that is seldom called, as that of a
        ragged batch at an epoch's end, gives way to the next.
        """
        if program is not self.program and not self._is_given and self.told.extra_s is None:
            self.program = program
            self._times = {False: [], True: []}

    def wait(self, outputs: object) -> None:
        """Until the devices are done with what a program put out, while one is timed."""
        if self.program is not None:
            jax.block_until_ready(outputs)

    def _note_time(self, seconds: float, steps: int, *, is_large: bool) -> None:
        """A call took so long until its devices were done and what it recorded was read."""
        self._times[is_large].append(seconds)
        if len(self._times[True]) > PAIRS:
            plain, large = (min(self._times[kind][1:]) for kind in (False, True))
            self._choose(max(plain, 1e-9) / steps, max(0.0, large - plain))

    def _choose(self, plain_s: float, extra_s: float) -> None:
        least = max(LEAST_CALLS, LEAST_S / plain_s, extra_s / (MOST_SHARE * plain_s))
        every = self._agree(self._whole(min(MOST_CALLS, math.ceil(least))))
        self.told = Sampling(every, is_chosen=True, extra_s=extra_s, plain_s=plain_s)
        self.program = None

    def _whole(self, every: int) -> int:
        """Large arrays are recorded in calls only that are sampled."""
        return -(-every // self._unit) * self._unit
