"""Metrics of a run, as curves of at most so many points as the reader can draw."""

from __future__ import annotations  # array[float] is a type only from Python 3.12 on

import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import Any, Literal, NamedTuple

from sqlalchemy import BindParameter, ColumnElement, Row, Select, bindparam, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.storage import runs
from drumline_server.storage.history import IN_METRICS
from drumline_server.storage.models import Attempt, Gap, Metric, MetricChunk, MetricPage
from drumline_server.storage.runs import require_run
from drumline_server.telemetry.buckets import Axis, Chunk, Overview, Piece, points
from drumline_server.telemetry.metric_rows import CHUNK, PAGE, count_pages, decompress, unpack

_SECOND = 1_000_000
_AT_ONCE = 1_000
"""Chunks in one statement: far from how many parameters a database takes."""
_BY = {
    "step": (MetricPage.first_steps, MetricPage.last_steps, MetricPage.last_values_by_step),
    "time": (MetricPage.first_times, MetricPage.last_times, MetricPage.last_values_by_time),
}
_FIGURES = (MetricPage.finite, MetricPage.minima, MetricPage.maxima, MetricPage.sums)
_MEMBERS: BindParameter[str] = bindparam("members", expanding=True)
_NAMES: BindParameter[str] = bindparam("names", expanding=True)
SELECT_CHUNKS = select(
    MetricChunk.member_id,
    MetricChunk.name,
    MetricChunk.number,
    MetricChunk.steps,
    MetricChunk.times,
    MetricChunk.points,
)
_NEWEST_CHUNKS = (
    SELECT_CHUNKS.join(Metric, (Metric.member_id == MetricChunk.member_id) & (Metric.name == MetricChunk.name))
    .where(Metric.member_id.in_(_MEMBERS), Metric.name.in_(_NAMES))
    .where(MetricChunk.number >= (Metric.n // (CHUNK * PAGE) - 1) * PAGE)
    .order_by(MetricChunk.number)
)
"""All that may stand in no page: the newest page may be made one page later."""
_READ_AT_ONCE = 4_096
"""Chunks, or as much of pages: some 4 MB."""
_PAGE_CHUNKS = 5
"""Chunks that are as long as a page."""
PageRow = Row[*tuple[Any, ...]]  # Any: key, number, first and last step, then the columns of `_BY` and `_FIGURES`
ChunkRow = Row[str, str, int, bytes, bytes, bytes]


@dataclass(frozen=True, slots=True)
class View:
    """What to read: values before `before_step`, by step or by seconds since `began`."""

    x: Literal["step", "time"]
    began: int
    before_step: int | None

    def xs(self, column: array[float]) -> array[float]:
        """Steps or times as they stand on the axis."""
        return column if self.x == "step" else array("d", ((at - self.began) / _SECOND for at in column))

    def chunk(self, steps: bytes, times: bytes, values: bytes, n: int = CHUNK) -> Chunk:
        """The stored values that count, of `n`."""
        xs = self.xs(decompress("q", steps if self.x == "step" else times, n))
        points = decompress("d", values, n)
        if self.before_step is not None:
            kept = [at for at, step in enumerate(decompress("q", steps, n)) if step < self.before_step]
            xs, points = array(xs.typecode, (xs[at] for at in kept)), array("d", (points[at] for at in kept))
        return Chunk.of(xs, points)

    def counts(self, page: PageRow) -> bool:
        """Whether anything of the page is read."""
        return self.before_step is None or page.first_step < self.before_step

    def counts_whole(self, page: PageRow) -> bool:
        """Whether nothing of the page is cut."""
        return self.before_step is None or page.last_step < self.before_step


Key = tuple[str, str]
"""Of a metric: its member and name."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What was read at once of some metrics: their pages, and the chunks that stand in no page."""

    pages: Mapping[Key, Sequence[PageRow]]
    chunks: Mapping[Key, Sequence[ChunkRow]]


def read_pieces(session: Session, metric: Metric, view: View, stored: Stored) -> Iterator[Piece]:
    """The values of a metric in the order of logging. No piece is empty."""
    load, key = partial(_load, session, metric, view), (metric.member_id, metric.name)
    counting = filter(view.counts, stored.pages.get(key, ()))
    for is_whole, some in groupby(counting, view.counts_whole):
        pages = list(some)
        numbers = list(chain.from_iterable(range(page.number * PAGE, (page.number + 1) * PAGE) for page in pages))
        if is_whole:
            yield _overview(pages, numbers, view, load)
        else:
            yield from filter(_has_values, load(numbers))
    yield from filter(_has_values, (view.chunk(*row[3:]) for row in stored.chunks.get(key, ())))
    yield from filter(_has_values, [view.chunk(metric.steps, metric.times, metric.points, metric.n % CHUNK)])


def _read_stored(session: Session, metrics: Sequence[Metric], window: Window) -> Stored:
    """Pages without any step of the window are left out, where it is one of steps."""
    known = {(metric.member_id, metric.name): _count_pages(metric) for metric in metrics if metric.n >= CHUNK}
    wanted = {"members": list({member for member, _ in known}), "names": list({name for _, name in known})}
    start, end = (window.start, window.end) if window.x == "step" else (None, None)
    pages: dict[Key, list[PageRow]] = defaultdict(list)
    if any(known.values()):
        conditions = [] if start is None else [MetricPage.last_step >= int(start)]
        conditions += [] if end is None else [MetricPage.first_step <= int(end)]
        columns = (MetricPage.member_id, MetricPage.name, MetricPage.number, MetricPage.first_step)
        query = select(*columns, MetricPage.last_step, *_BY[window.x], *_FIGURES)
        of_any = (MetricPage.member_id.in_(_MEMBERS), MetricPage.name.in_(_NAMES))
        for page in session.execute(query.where(*of_any, *conditions).order_by(MetricPage.number), wanted):
            if page.number < known.get((page.member_id, page.name), 0):
                pages[page.member_id, page.name].append(page)
    chunks: dict[Key, list[ChunkRow]] = defaultdict(list)
    for chunk in session.execute(_NEWEST_CHUNKS, wanted) if known else ():
        if chunk.number >= known.get((chunk.member_id, chunk.name), 0) * PAGE:
            chunks[chunk.member_id, chunk.name].append(chunk)
    return Stored(pages, chunks)


def _count_pages(metric: Metric) -> int:
    return count_pages(metric.name, metric.n // CHUNK)


def _overview(
    pages: Sequence[PageRow], numbers: Sequence[int], view: View, load: Callable[[Sequence[int]], Iterator[Chunk]]
) -> Overview:
    _, _, _, _, _, *columns = zip(*pages, strict=True)
    starts, ends, lasts, finite, minima, maxima, sums = map(b"".join, columns)
    return Overview(
        size=CHUNK,
        numbers=numbers,
        starts=view.xs(unpack("q", starts)),
        ends=view.xs(unpack("q", ends)),
        lasts=unpack("d", lasts),
        finite=unpack("q", finite),
        minima=unpack("d", minima),
        maxima=unpack("d", maxima),
        sums=unpack("d", sums),
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


MAX_NAMES = 200
MAX_GAPS = 1_000
MAX_GROUPED = 20_000
"""Names of one answer about groups: beyond, it says that it is not complete."""
SPEED = "sys"
"""The group of what the engine measures itself: it comes last, as a run is opened for what its program learns."""
UNITS = {"steps_per_s": "steps/s", "examples_per_s": "examples/s"}


@dataclass(frozen=True, slots=True)
class Window:
    """What to show: metrics by `names` (all if none), the x axis, its bounds, and how many buckets at most.

    With `first` only so many of them, as people read a page: group by group, and numbers in names as numbers.

    Of one attempt if it is named, else of the run: what an attempt rolled back is cut. Time counts from `since`, in
    microseconds, or from when the first attempt shown began.
    """

    names: tuple[str, ...]
    x: Literal["step", "time"]
    start: float | None
    end: float | None
    buckets: int
    attempt: str | None = None
    since: int | None = None
    first: int | None = None


class Part(NamedTuple):
    """The metrics of one attempt as far as they count: before the step from which a later attempt logged again."""

    attempt: Attempt
    metrics: Sequence[Metric]
    before_step: int | None


def read_metrics(session: Session, project_id: str, run_id: str, window: Window) -> api.Metrics:
    """The metrics of a run within `window`. Raises NotFoundError, also for an attempt of another run."""
    run = require_run(session, project_id, run_id)
    if window.attempt is None:
        attempts = runs.attempts_of(session, run.id)
    else:
        attempts = [found] if (found := runs.the_attempt(session, run, window.attempt)) else []
    metrics = find_metrics(session, [run.id], window)
    curves = curves_of(session, attempts, metrics, window)
    series = tuple(_series(of_name, pieces, window) for of_name, pieces in curves)
    parts = parts_of(attempts, metrics)
    gaps = gaps_of(session, parts, window)
    return api.Metrics(run=run.id, x=window.x, series=series, gaps=gaps, began=began(parts))


def find_metrics(session: Session, run_ids: Sequence[str], window: Window) -> Sequence[Metric]:
    """The metrics of the runs by name, each as every member logged it."""
    wanted: list[ColumnElement[bool]] = [Metric.run_id.in_(run_ids)]
    if window.names:
        wanted.append(Metric.name.in_(window.names))
    if window.attempt is not None:
        wanted.append(Metric.attempt_id == window.attempt)
    names: Select[str] | Sequence[str]
    names = select(Metric.name).where(*wanted).distinct().order_by(Metric.name)
    if window.first is None:
        names = names.limit(MAX_NAMES)
    else:
        names = sorted(session.scalars(names.limit(MAX_GROUPED)), key=_as_read)[: window.first]
    return session.scalars(
        select(Metric).where(*wanted, Metric.name.in_(names)).order_by(Metric.name, Metric.member_id)
    ).all()


def group_of(name: str) -> str:
    """What a name has before its first `/`; nothing where it has none."""
    return name.partition("/")[0] if "/" in name else ""


_DIGITS = re.compile(r"(\d+)")


def _as_read(name: str) -> tuple[bool, str, list[str | int]]:
    """By what names are put in the order of a page."""
    group = group_of(name)
    parts = _DIGITS.split(name.casefold())
    return group == SPEED, group, [int(part) if nth % 2 else part for nth, part in enumerate(parts)]


def _series(metrics: Sequence[Metric], pieces: Sequence[Piece], window: Window) -> api.MetricSeries:
    axis = Axis.over(pieces, window.start, window.end, window.buckets)
    return api.MetricSeries(
        name=metrics[0].name,
        unit=UNITS.get(metrics[0].name, ""),
        n=sum(metric.n for metric in metrics),
        last_step=max(metric.last_step for metric in metrics),
        bucket_width=axis.width,
        points=points(pieces, axis),
    )


def gaps_of(session: Session, parts: Sequence[Part], window: Window) -> tuple[api.MetricGap, ...]:
    """What is lost of the attempts as far as they count, where it stands on the axis."""
    bounds = {part.attempt.id: part.before_step for part in parts}
    query = select(Gap).where(Gap.attempt_id.in_(bounds), Gap.what.in_(IN_METRICS)).order_by(Gap.id).limit(MAX_GAPS)
    zero = _zero(parts, window)
    found = []
    for row in session.scalars(query) if bounds else ():
        bound = bounds[row.attempt_id]
        if bound is not None and row.after_step is not None and row.after_step >= bound:
            continue
        by_step = window.x == "step"
        start = row.after_step if by_step else _seconds_since(zero, row.after_at)
        end = row.before_step if by_step else _seconds_since(zero, row.before_at)
        found.append(api.MetricGap(start=start, end=end, count=row.count, size_bytes=row.size_bytes, what=row.what))
    return tuple(found)


def _seconds_since(zero: int, at: int | None) -> float | None:
    return None if at is None else (at - zero) / _SECOND


def _zero(parts: Sequence[Part], window: Window) -> int:
    return window.since if window.since is not None else (began(parts) or 0)


def began(parts: Sequence[Part]) -> int | None:
    """When the first attempt that is shown did, in microseconds."""
    return next((part.attempt.started_at or part.attempt.created_at for part in parts), None)


def curves_of(
    session: Session, attempts: Sequence[Attempt], metrics: Sequence[Metric], window: Window
) -> Iterator[tuple[Sequence[Metric], Sequence[Piece]]]:
    """Each curve as its rows and its pieces; `metrics` are in the order of their names."""
    for some in _at_once(metrics):
        stored = _read_stored(session, [metric for of_name in some for metric in of_name], window)
        for of_name in some:
            parts = parts_of(attempts, of_name)
            zero = _zero(parts, window)
            yield (
                of_name,
                [
                    piece
                    for part in parts
                    for metric in part.metrics
                    for piece in read_pieces(session, metric, View(window.x, zero, part.before_step), stored)
                ],
            )


def _at_once(metrics: Sequence[Metric]) -> Iterator[list[list[Metric]]]:
    """So many names, each with its rows, as are read together."""
    some: list[list[Metric]] = []
    room = _READ_AT_ONCE
    for _, rows in groupby(metrics, key=lambda metric: metric.name):
        of_name = list(rows)
        length = sum(_PAGE_CHUNKS * _count_pages(metric) + min(metric.n // CHUNK, 2 * PAGE) for metric in of_name)
        if some and length > room:
            yield some
            some, room = [], _READ_AT_ONCE
        room -= length
        some.append(of_name)
    if some:
        yield some


def parts_of(attempts: Sequence[Attempt], metrics: Sequence[Metric]) -> list[Part]:
    """What each attempt adds to the curve: a retry replaces what was logged from its first step on."""
    parts: list[Part] = []
    bound: int | None = None
    for attempt in reversed(attempts):
        own = [metric for metric in metrics if metric.attempt_id == attempt.id]
        first = min((metric.first_step for metric in own), default=None)
        if first is not None and (bound is None or first < bound):
            parts.append(Part(attempt, own, bound))
            bound = first
    return parts[::-1]
