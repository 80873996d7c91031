"""Reads what is stored of one metric as pieces of its curve: pages as far as they count whole, else chunks."""

from __future__ import annotations  # array[float] is a type only from Python 3.12 on

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import Any, Literal

from sqlalchemy import ColumnElement, Row, select
from sqlalchemy.orm import Session

from drumline_server.models import Metric, MetricChunk, MetricPage
from drumline_server.telemetry.buckets import Chunk, Overview, Piece
from drumline_server.telemetry.columns import unpack
from drumline_server.telemetry.metric_rows import CHUNK, PAGE

_SECOND = 1_000_000
_AT_ONCE = 1_000
"""Chunks in one statement: far from how many parameters a database takes."""
_BY = {
    "step": (MetricPage.first_steps, MetricPage.last_steps, MetricPage.step_lasts),
    "time": (MetricPage.first_times, MetricPage.last_times, MetricPage.time_lasts),
}
_FIGURES = (MetricPage.finite, MetricPage.lows, MetricPage.highs, MetricPage.totals)
PageRow = Row[*tuple[Any, ...]]  # Any: number and last step, then the columns of `_BY` and `_FIGURES`


@dataclass(frozen=True, slots=True)
class View:
    """What to read: values before `before_step`, by step or by seconds since `began`.

    Pages without any of the steps from `first_step` to `last_step` may be left out.
    """

    x: Literal["step", "time"]
    began: int
    before_step: int | None
    first_step: int | None
    last_step: int | None

    def xs(self, stored: bytes) -> array[float]:
        """Stored steps or times as they stand on the axis."""
        column = unpack("q", stored)
        return column if self.x == "step" else array("d", ((at - self.began) / _SECOND for at in column))

    def chunk(self, steps: bytes, times: bytes, values: bytes) -> Chunk:
        """The stored values that count."""
        xs, points = self.xs(steps if self.x == "step" else times), unpack("d", values)
        if self.before_step is not None:
            kept = [at for at, step in enumerate(unpack("q", steps)) if step < self.before_step]
            xs, points = array(xs.typecode, (xs[at] for at in kept)), array("d", (points[at] for at in kept))
        return Chunk.of(xs, points)

    def wanted_pages(self) -> Iterator[ColumnElement[bool]]:
        """What is true of the pages to read."""
        if self.before_step is not None:
            yield MetricPage.first_step < self.before_step
        if self.first_step is not None:
            yield MetricPage.last_step >= self.first_step
        if self.last_step is not None:
            yield MetricPage.first_step <= self.last_step

    def counts_whole(self, page: PageRow) -> bool:
        """Whether nothing of the page is cut."""
        return self.before_step is None or page.last_step < self.before_step


def pieces_of(session: Session, metric: Metric, view: View) -> Iterator[Piece]:
    """The values of a metric in the order of logging. No piece is empty."""
    load = partial(_load, session, metric, view)
    for is_whole, some in groupby(_pages(session, metric, view), view.counts_whole):
        pages = list(some)
        numbers = list(chain.from_iterable(range(page.number * PAGE, (page.number + 1) * PAGE) for page in pages))
        if is_whole:
            yield _overview(pages, numbers, view, load)
        else:
            yield from filter(_has_values, load(numbers))
    yield from filter(_has_values, load(range(metric.n // (CHUNK * PAGE) * PAGE, metric.n // CHUNK)))
    yield from filter(_has_values, [view.chunk(metric.steps, metric.times, metric.points)])


def _pages(session: Session, metric: Metric, view: View) -> Sequence[PageRow]:
    query = (
        select(MetricPage.number, MetricPage.last_step, *_BY[view.x], *_FIGURES)
        .where(MetricPage.member_id == metric.member_id, MetricPage.name == metric.name, *view.wanted_pages())
        .order_by(MetricPage.number)
    )
    return session.execute(query).all()


def _overview(
    pages: Sequence[PageRow], numbers: Sequence[int], view: View, load: Callable[[Sequence[int]], Iterator[Chunk]]
) -> Overview:
    _, _, *columns = zip(*pages, strict=True)
    starts, ends, lasts, finite, lows, highs, totals = map(b"".join, columns)
    return Overview(
        size=CHUNK,
        numbers=numbers,
        starts=view.xs(starts),
        ends=view.xs(ends),
        lasts=unpack("d", lasts),
        finite=unpack("q", finite),
        lows=unpack("d", lows),
        highs=unpack("d", highs),
        totals=unpack("d", totals),
        load=load,
    )


def _load(session: Session, metric: Metric, view: View, numbers: Sequence[int]) -> Iterator[Chunk]:
    """The chunks of those numbers, which ascend."""
    query = (
        select(MetricChunk.steps, MetricChunk.times, MetricChunk.points)
        .where(MetricChunk.member_id == metric.member_id, MetricChunk.name == metric.name)
        .order_by(MetricChunk.number)
    )
    for at in range(0, len(numbers), _AT_ONCE):
        for row in session.execute(query.where(MetricChunk.number.in_(numbers[at : at + _AT_ONCE]))):
            yield view.chunk(*row)


def _has_values(chunk: Chunk) -> bool:
    return len(chunk.xs) > 0
