"""Puts any number of logged values into buckets that hide no spike: minimum, maximum, mean, last and count of each.

Works slice by slice on typed arrays, so a million points cost the speed of `min`, `max` and `sum`, not of a loop.
"""

from __future__ import annotations  # array[float] is a type only from Python 3.12 on

import math
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from drumline.contracts import api


@dataclass(frozen=True, slots=True)
class Chunk:
    """Values of one metric in the order of logging: `xs[i]` is where `values[i]` stands on the x axis."""

    xs: array[float]
    values: array[float]


@dataclass(slots=True)
class _Bucket:
    x: float = -math.inf
    low: float = math.inf
    high: float = -math.inf
    total: float = 0.0
    finite: int = 0
    count: int = 0
    last: float = math.nan

    def add(self, xs: array[float], values: array[float]) -> None:
        if xs[-1] >= self.x:
            self.x, self.last = xs[-1], values[-1]
        self.count += len(values)
        total = sum(values)
        kept = values if math.isfinite(total) else array("d", filter(math.isfinite, values))
        if kept:
            self.low = min(self.low, min(kept))
            self.high = max(self.high, max(kept))
            self.total += total if kept is values else math.fsum(kept)
            self.finite += len(kept)

    def mean(self) -> float | None:
        return self.total / self.finite if self.finite else None


@dataclass(frozen=True, slots=True)
class Axis:
    """Even buckets over [start, end]; `width` 0 means that each distinct x has a bucket of its own."""

    start: float
    end: float
    width: float

    @classmethod
    def over(cls, start: float, end: float, buckets: int, *, distinct: int) -> Axis:
        """Buckets over the range; none are needed where there are no more than `buckets` distinct x."""
        span = end - start
        return cls(start, end, 0.0 if distinct <= buckets or span <= 0 else span / buckets)

    def upper(self, x: float) -> float:
        """Where the bucket of `x` ends; values at it belong to the next bucket."""
        if self.width == 0:
            return math.nextafter(x, math.inf)
        number = math.floor((x - self.start) / self.width) + 1
        bound = self.start + number * self.width
        return bound if bound > x else math.nextafter(x, math.inf)

    def key(self, x: float) -> float:
        """What tells the bucket of `x` from the others; the end of the range belongs to the last bucket."""
        if self.width == 0:
            return x
        last = round((self.end - self.start) / self.width) - 1
        return float(min(math.floor((x - self.start) / self.width), last))


@dataclass(slots=True)
class Series:
    """Collects the chunks of one metric."""

    axis: Axis
    _buckets: dict[float, _Bucket] = field(default_factory=dict)

    def add(self, chunk: Chunk) -> None:
        """Adds values; those outside the axis are left out."""
        xs, values = _ordered(chunk)
        at, stop = bisect_left(xs, self.axis.start), bisect_left(xs, math.nextafter(self.axis.end, math.inf))
        while at < stop:
            until = min(bisect_left(xs, self.axis.upper(xs[at]), at, stop), stop)
            bucket = self._buckets.setdefault(self.axis.key(xs[at]), _Bucket())
            bucket.add(xs[at:until], values[at:until])
            at = until

    def points(self) -> api.MetricPoints:
        """The buckets in order of x, column by column."""
        buckets = [self._buckets[key] for key in sorted(self._buckets)]
        return api.MetricPoints(
            x=tuple(bucket.x for bucket in buckets),
            min=tuple(bucket.low if bucket.finite else None for bucket in buckets),
            max=tuple(bucket.high if bucket.finite else None for bucket in buckets),
            mean=tuple(bucket.mean() for bucket in buckets),
            last=tuple(bucket.last for bucket in buckets),
            count=tuple(bucket.count for bucket in buckets),
        )


def column(typecode: str, stored: bytes) -> array[float]:
    """A stored column: little-endian 64-bit values of `typecode` q or d."""
    values: array[float] = array(typecode)
    values.frombytes(stored)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _ordered(chunk: Chunk) -> tuple[array[float], array[float]]:
    """The chunk by x, without a copy where it is in order, as it nearly always is."""
    xs, values = chunk.xs, chunk.values
    if _is_sorted(xs):
        return xs, values
    order = sorted(range(len(xs)), key=xs.__getitem__)
    return array(xs.typecode, (xs[i] for i in order)), array("d", (values[i] for i in order))


def _is_sorted(xs: Iterable[float]) -> bool:
    listed = list(xs)
    return listed == sorted(listed)
