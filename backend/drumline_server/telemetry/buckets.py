"""Puts any number of logged values into buckets that hide no spike: minimum, maximum, mean, last and count of each.

Values come as pieces of a curve: a `Chunk` has them, an `Overview` knows what stands in many chunks and loads only
those that lie in several buckets. Both go from bucket to bucket on typed arrays, at the speed of `min` and `sum`.

A bucket of many chunks ends where a chunk ends: the one on its edge belongs to it whole. So a curve of a million values
is drawn from its pages alone; each bucket is exact for the values that it counts, and says at which x it ends.
"""

from __future__ import annotations  # array[float] is a type only from Python 3.12 on

import math
import operator
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, count, islice, pairwise
from typing import Any, NamedTuple

from drumline.contracts import api

EXACT = 17
"""Significant digits that tell every float from its neighbours."""
MANY_CHUNKS = 8
"""From so many on the chunk on a bucket's edge is not split: the edge moves by an eighth of the bucket at most."""


class Summary(NamedTuple):
    """What `n` values have in common that stand together: `last` is the last one at `x`, the greatest there is.

    `low`, `high` and `total` are of the `finite` values, those that are neither NaN nor infinite.
    """

    x: float
    last: float
    n: int
    finite: int
    low: float
    high: float
    total: float

    @classmethod
    def of(cls, xs: array[float], values: array[float]) -> Summary:
        """Of values in the order of their `xs`."""
        total = _added(values)
        kept = values if math.isfinite(total) else array("d", filter(math.isfinite, values))
        low, high = min(kept, default=math.inf), max(kept, default=-math.inf)
        return cls(xs[-1], values[-1], len(values), len(kept), low, high, total if kept is values else _sum(kept))


@dataclass(frozen=True, slots=True)
class Span:
    """What an axis must know of a curve: its least and greatest x, and its distinct ones, up to one more than buckets.

    The distinct ones are of a range.
    """

    start: float
    end: float
    distinct: frozenset[float]

    @classmethod
    def of(cls, pieces: Sequence[Piece], start: float | None, end: float | None, buckets: int) -> Span:
        """Of a curve of at least one piece."""
        first, last = min(piece.start() for piece in pieces), max(piece.end() for piece in pieces)
        xs = _xs_between(pieces, first if start is None else start, last if end is None else end)
        return cls(float(first), float(last), _first_distinct(buckets + 1, xs))


@dataclass(frozen=True, slots=True)
class Axis:
    """Buckets from edge to edge; `width` is what they have in common, 0 where each distinct x has one of its own."""

    edges: Sequence[float]
    width: float

    @classmethod
    def over(cls, pieces: Sequence[Piece], start: float | None, end: float | None, buckets: int) -> Axis:
        """At most so many buckets over the range, or over all there is. The end of the range is in the last."""
        spans = [Span.of(pieces, start, end, buckets)] if pieces else []
        return cls.across(spans, start, end, buckets)

    @classmethod
    def across(cls, spans: Sequence[Span], start: float | None, end: float | None, buckets: int) -> Axis:
        """The one axis of curves that have these spans within the range."""
        if not spans:
            return cls((), 0.0)
        left = min(span.start for span in spans) if start is None else float(start)
        right = max(span.end for span in spans) if end is None else float(end)
        beyond = math.nextafter(right, math.inf)
        distinct = frozenset().union(*(span.distinct for span in spans))
        if len(distinct) <= buckets:
            return cls((*sorted(distinct), beyond), 0.0)
        width = (right - left) / buckets
        return cls((*(left + number * width for number in range(buckets)), beyond), width)

    def bucket(self, x: float) -> int:
        """The number of the bucket of `x`, from 1; 0 is before the first edge."""
        return bisect_right(self.edges, x)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Values of one metric by x, those of one x in the order of logging."""

    xs: array[float]
    values: array[float]

    @classmethod
    def of(cls, xs: array[float], values: array[float]) -> Chunk:
        """Values in the order of logging, which is nearly always the order of x too."""
        if list(xs) == (ordered := sorted(xs)):
            return cls(xs, values)
        order = sorted(range(len(xs)), key=xs.__getitem__)
        return cls(array(xs.typecode, ordered), array("d", (values[at] for at in order)))

    def start(self) -> float:
        """The least x."""
        return self.xs[0]

    def end(self) -> float:
        """The greatest x."""
        return self.xs[-1]

    def known_xs(self) -> Iterable[float]:
        """Each x."""
        return self.xs

    def all_xs(self, start: float, end: float) -> Iterable[float]:
        """Each x between `start` and `end`."""
        return self.xs[bisect_left(self.xs, start) : bisect_right(self.xs, end)]

    def summaries(self, axis: Axis) -> Iterator[tuple[int, Summary]]:
        """What the chunk adds to each bucket; values outside the axis are left out."""
        at, stop = bisect_left(self.xs, axis.edges[0]), bisect_left(self.xs, axis.edges[-1])
        while at < stop:
            bucket = axis.bucket(self.xs[at])
            until = bisect_left(self.xs, axis.edges[bucket], at, stop)
            yield bucket, Summary.of(self.xs[at:until], self.values[at:until])
            at = until


@dataclass(frozen=True, slots=True)
class Overview:
    """What stands in chunks of `size` values each, in the order of logging; `load` brings chunks by their numbers."""

    size: int
    numbers: Sequence[int]
    starts: array[float]
    ends: array[float]
    lasts: array[float]
    finite: array[float]
    minima: array[float]
    maxima: array[float]
    sums: array[float]
    load: Callable[[Sequence[int]], Iterator[Chunk]]

    def start(self) -> float:
        """The least x."""
        return min(self.starts)

    def end(self) -> float:
        """The greatest x."""
        return max(self.ends)

    def known_xs(self) -> Iterable[float]:
        """Each x that is known without loading anything."""
        return chain(self.starts, self.ends)

    def all_xs(self, start: float, end: float) -> Iterable[float]:
        """Each x between `start` and `end` that is not known yet."""
        spans = zip(self.numbers, self.starts, self.ends, strict=True)
        unknown = [number for number, first, last in spans if first < last and first <= end and last >= start]
        return chain.from_iterable(chunk.all_xs(start, end) for chunk in self.load(unknown))

    def summaries(self, axis: Axis) -> Iterator[tuple[int, Summary]]:
        """What the chunks add to each bucket; values outside the axis are left out."""
        spans = [span for stretch in self._stretches() for span in self._spans(axis, *stretch)]
        split = self.load([self.numbers[at] for at, until in spans if at == until])
        for at, until in spans:
            if at == until:
                yield from next(split).summaries(axis)
            else:
                yield axis.bucket(self.ends[at]), self._summary(at, until)

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """Chunks one after the other on the axis: a new stretch begins where a program goes back."""
        goes_back = map(operator.lt, self.starts[1:], self.ends)
        return pairwise([0, *compress(count(1), goes_back), len(self.numbers)])

    def _spans(self, axis: Axis, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """The chunks of a stretch bucket by bucket; (n, n) is a chunk that does not lie in one bucket whole."""
        at = bisect_left(self.ends, axis.edges[0], first, stop)
        stop = bisect_left(self.starts, axis.edges[-1], at, stop)
        while at < stop:
            bucket = axis.bucket(self.starts[at])
            until = bisect_left(self.ends, axis.edges[bucket], at, stop)
            if until - at >= MANY_CHUNKS and until < stop and self._ends_in_next(axis, bucket, until):
                until += 1
            yield at, until
            at = max(until, at + 1)

    def _ends_in_next(self, axis: Axis, bucket: int, at: int) -> bool:
        """Whether a chunk that begins in the bucket ends in the one after; never where each x has its own bucket."""
        return axis.width > 0 and bucket + 1 < len(axis.edges) and self.ends[at] < axis.edges[bucket + 1]

    def _summary(self, at: int, until: int) -> Summary:
        some = slice(at, until)
        return Summary(
            self.ends[until - 1],
            self.lasts[until - 1],
            self.size * (until - at),
            int(sum(self.finite[some])),
            min(self.minima[some]),
            max(self.maxima[some]),
            _added(self.sums[some]),
        )


Piece = Chunk | Overview


@dataclass(slots=True)
class _Bucket:
    x: float = -math.inf
    last: float = math.nan
    count: int = 0
    finite: int = 0
    low: float = math.inf
    high: float = -math.inf
    total: float = -0.0  # what -0.0 is added to and stays itself

    def add(self, some: Summary) -> None:
        if some.x >= self.x:
            self.x, self.last = some.x, some.last
        self.count += some.n
        self.finite += some.finite
        self.low = min(self.low, some.low)
        self.high = max(self.high, some.high)
        self.total += some.total

    def mean(self) -> float | None:
        """Never outside of what was logged: 0.1 three times adds up to a mean of 0.10000000000000002."""
        if not self.finite:
            return None
        mean = self.total / self.finite
        if math.isnan(mean):  # sums of both signs were too large for a float
            mean = self.low / 2 + self.high / 2
        return min(max(mean, self.low), self.high)


def points(pieces: Iterable[Piece], axis: Axis) -> api.MetricPoints:
    """The buckets of pieces in the order of logging: by x, column by column."""
    curve = list(pieces)
    alone = _join(curve) if axis.width == 0 and axis.edges else None
    if alone is not None:
        return api.MetricPoints(**_copy(alone, axis))
    known = _fill(curve, axis)
    return api.MetricPoints(**_columns([known[bucket] for bucket in sorted(known)]))


def numbered_points(
    pieces: Iterable[Piece], axis: Axis, columns: Collection[api.CurveColumn] = api.CURVE_COLUMNS, digits: int = EXACT
) -> api.NumberedPoints:
    """The same, each with its bucket's number on the axis, from 0; columns that are not named are empty.

    Values have so many significant digits.
    """
    known = _fill(pieces, axis)
    numbers = sorted(known)
    kept = _columns([known[number] for number in numbers], columns, digits)
    return api.NumberedPoints(bucket=tuple(number - 1 for number in numbers), **kept)


def _join(pieces: Sequence[Piece]) -> Chunk | None:
    """All values as one chunk, if no two have the same x: most curves of a run that has not logged for long."""
    chunks = [piece for piece in pieces if isinstance(piece, Chunk)]
    if not chunks or len(chunks) < len(pieces):
        return None
    xs: array[Any] = array(chunks[0].xs.typecode)  # Any: steps are whole numbers, times are not
    values = array("d")
    for chunk in chunks:
        xs.extend(chunk.xs)
        values.extend(chunk.values)
    return Chunk(xs, values) if all(map(operator.lt, xs, islice(xs, 1, None))) else None


def _copy(chunk: Chunk, axis: Axis) -> dict[str, Any]:  # Any: columns of numbers
    """What `_columns` has of values that have a bucket each; thousands of them are summarized ten times slower."""
    some = slice(bisect_left(chunk.xs, axis.edges[0]), bisect_left(chunk.xs, axis.edges[-1]))
    values = tuple(chunk.values[some])
    finite: tuple[float | None, ...] = values
    odd = (0,) * len(values)
    if not math.isfinite(sum(values)):
        finite = tuple(value if math.isfinite(value) else None for value in values)
        odd = tuple(int(value is None) for value in finite)
    shared = {"min": finite, "max": finite, "mean": finite, "last": values}
    return {"x": tuple(chunk.xs[some]), **shared, "count": (1,) * len(values), "not_finite": odd}


def _fill(pieces: Iterable[Piece], axis: Axis) -> dict[int, _Bucket]:
    known: dict[int, _Bucket] = defaultdict(_Bucket)
    for piece in pieces:
        for bucket, summary in piece.summaries(axis):
            known[bucket].add(summary)
    return known


_COLUMNS: Mapping[api.CurveColumn, Callable[[_Bucket], float | None]] = {
    "min": lambda bucket: bucket.low if bucket.finite else None,
    "max": lambda bucket: bucket.high if bucket.finite else None,
    "mean": _Bucket.mean,
    "last": lambda bucket: bucket.last,
    "count": lambda bucket: bucket.count,
    "not_finite": lambda bucket: bucket.count - bucket.finite,
}


def _columns(
    buckets: Sequence[_Bucket], names: Collection[api.CurveColumn] = api.CURVE_COLUMNS, digits: int = EXACT
) -> dict[str, Any]:  # Any: columns of numbers
    columns: dict[str, Any] = {name: tuple(map(of, buckets)) if name in names else () for name, of in _COLUMNS.items()}
    if digits < EXACT:
        columns |= {name: _rounded(columns[name], digits) for name in ("min", "max", "mean", "last")}
    return {"x": tuple(bucket.x for bucket in buckets), **columns}


def _rounded(column: Sequence[float | None], digits: int) -> tuple[float | None, ...]:
    form = f".{digits}g"
    return tuple(None if value is None else float(format(value, form)) for value in column)


def _added(values: array[float]) -> float:
    """Their sum; that of -0.0 alone is -0.0, which `sum` makes 0.0 where it begins with its own zero."""
    return sum(values, -0.0)


def _sum(values: array[float]) -> float:
    """Of finite values; infinite where a float cannot hold the sum, not where only sums on the way are too large."""
    total = _added(values)
    if math.isfinite(total):
        return total
    # A power of two divides exactly, and one above the count leaves no sum on the way that fsum would refuse.
    scale = 2.0 ** len(values).bit_length()
    return math.fsum(value / scale for value in values) * scale


def _xs_between(pieces: Sequence[Piece], start: float, end: float) -> Iterator[float]:
    """Each x between `start` and `end` at least once, those first for which nothing is loaded."""
    for piece in pieces:
        yield from (x for x in piece.known_xs() if start <= x <= end)
    for piece in pieces:
        yield from piece.all_xs(start, end)


def _first_distinct(most: int, xs: Iterable[float]) -> frozenset[float]:
    """Up to so many distinct ones of them."""
    seen: set[float] = set()
    for x in xs:
        seen.add(x)
        if len(seen) == most:
            break
    return frozenset(seen)
