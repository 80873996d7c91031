"""Metrics of a run, as curves of at most so many points as the reader can draw."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.models import Attempt, MetricChunk, Run
from drumline_server.runs.service import require_run
from drumline_server.telemetry import queries
from drumline_server.telemetry.buckets import Axis, Chunk, Series, column

MAX_NAMES = 200
_UNITS = {"steps_per_s": "steps/s", "examples_per_s": "examples/s"}
_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Window:
    """What to show: metrics by `names` (all if none), the x axis, its bounds, and how many buckets at most.

    Of one attempt if it is named, else of the run: what an attempt rolled back is cut.
    """

    names: tuple[str, ...]
    x: Literal["step", "time"]
    start: float | None
    end: float | None
    buckets: int
    attempt: str | None = None


class _Known(NamedTuple):
    name: str
    n: int
    last_step: int


class _Columns(NamedTuple):
    steps: bytes
    times: bytes
    values: bytes


class _Part(NamedTuple):
    """The chunks of one attempt that count: those before the step from which a later attempt logged again."""

    attempt: Attempt
    before_step: int | None


def read_metrics(session: Session, project_id: str, run_id: str, window: Window) -> api.Metrics:
    """The metrics of a run within `window`. Raises NotFoundError, also for an attempt of another run."""
    run = require_run(session, project_id, run_id)
    if window.attempt is None:
        attempts = queries.attempts_of(session, run.id)
    else:
        attempts = [found] if (found := queries.the_attempt(session, run, window.attempt)) else []
    known = _known(session, run.id, window)
    series = tuple(_series(session, run, attempts, metric, window) for metric in known)
    return api.Metrics(run=run.id, x=window.x, series=series)


def _known(session: Session, run_id: str, window: Window) -> list[_Known]:
    query = (
        select(MetricChunk.name, func.sum(MetricChunk.n), func.max(MetricChunk.last_step))
        .where(MetricChunk.run_id == run_id)
        .group_by(MetricChunk.name)
        .order_by(MetricChunk.name)
        .limit(MAX_NAMES)
    )
    if window.names:
        query = query.where(MetricChunk.name.in_(window.names))
    if window.attempt is not None:
        query = query.where(MetricChunk.attempt_id == window.attempt)
    return [_Known(name, int(n), last_step) for name, n, last_step in session.execute(query)]


def _series(
    session: Session, run: Run, attempts: Sequence[Attempt], metric: _Known, window: Window
) -> api.MetricSeries:
    chunks = list(_chunks(session, run, attempts, metric.name, window))
    axis = _axis(chunks, window)
    series = Series(axis)
    for chunk in chunks:
        series.add(chunk)
    return api.MetricSeries(
        name=metric.name,
        unit=_UNITS.get(metric.name, ""),
        n=metric.n,
        last_step=metric.last_step,
        bucket_width=axis.width,
        points=series.points(),
    )


def _axis(chunks: Sequence[Chunk], window: Window) -> Axis:
    """Buckets over what is asked for; one for each x where these are few."""
    if not chunks:
        return Axis(0.0, 0.0, 0.0)
    start = min(min(chunk.xs) for chunk in chunks) if window.start is None else window.start
    end = max(max(chunk.xs) for chunk in chunks) if window.end is None else window.end
    shown = sum(len(chunk.xs) for chunk in chunks)
    if shown > window.buckets:
        inside = (x for chunk in chunks for x in chunk.xs if start <= x <= end)
        distinct: set[float] = set()
        for x in inside:
            distinct.add(x)
            if len(distinct) > window.buckets:
                break
        shown = len(distinct)
    return Axis.over(float(start), float(end), window.buckets, distinct=shown)


def _chunks(session: Session, run: Run, attempts: Sequence[Attempt], name: str, window: Window) -> Iterator[Chunk]:
    parts = _parts(session, run.id, attempts, name)
    began = next((part.attempt.started_at or part.attempt.created_at for part in parts), 0)
    for part in parts:
        query = _columns(part.attempt.id, name, window)
        if part.before_step is not None:
            query = query.where(MetricChunk.first_step < part.before_step)
        for row in session.execute(query):
            chunk = _chunk(_Columns(*row), window.x, began, part.before_step)
            if chunk.xs:
                yield chunk


def _columns(attempt_id: str, name: str, window: Window) -> "Select[bytes, bytes, bytes]":
    query = select(MetricChunk.steps, MetricChunk.times, MetricChunk.points).where(
        MetricChunk.attempt_id == attempt_id, MetricChunk.name == name
    )
    if window.x == "step" and window.start is not None:
        query = query.where(MetricChunk.last_step >= int(window.start))
    if window.x == "step" and window.end is not None:
        query = query.where(MetricChunk.first_step <= int(window.end))
    return query.order_by(MetricChunk.first_step, MetricChunk.seq)


def _chunk(stored: _Columns, x: str, began: int, before_step: int | None) -> Chunk:
    steps, values = column("q", stored.steps), column("d", stored.values)
    xs = steps if x == "step" else array("d", ((time - began) / _SECOND for time in column("q", stored.times)))
    if before_step is None or steps[-1] < before_step:
        return Chunk(xs, values)
    kept = [at for at, step in enumerate(steps) if step < before_step]
    return Chunk(array(xs.typecode, (xs[at] for at in kept)), array("d", (values[at] for at in kept)))


def _parts(session: Session, run_id: str, attempts: Sequence[Attempt], name: str) -> list[_Part]:
    """What each attempt adds to the curve: a retry replaces what was logged from its first step on."""
    query = (
        select(MetricChunk.attempt_id, func.min(MetricChunk.first_step))
        .where(MetricChunk.run_id == run_id, MetricChunk.name == name)
        .group_by(MetricChunk.attempt_id)
    )
    first_steps = {attempt_id: first for attempt_id, first in session.execute(query)}
    parts: list[_Part] = []
    bound: int | None = None
    for attempt in reversed(attempts):
        first = first_steps.get(attempt.id)
        if first is not None and (bound is None or first < bound):
            parts.append(_Part(attempt, bound))
            bound = first
    return parts[::-1]
