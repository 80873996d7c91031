"""Metrics of a run, as curves of at most so many points as the reader can draw."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.attempts.gaps import IN_METRICS
from drumline_server.models import Attempt, Gap, Metric
from drumline_server.runs.service import require_run
from drumline_server.telemetry import queries
from drumline_server.telemetry.buckets import Axis, Piece, points
from drumline_server.telemetry.metric_pieces import View, pieces_of

MAX_NAMES = 200
MAX_GAPS = 1_000
_UNITS = {"steps_per_s": "steps/s", "examples_per_s": "examples/s"}


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


class _Part(NamedTuple):
    """The metrics of one attempt as far as they count: before the step from which a later attempt logged again."""

    attempt: Attempt
    metrics: Sequence[Metric]
    before_step: int | None


def read_metrics(session: Session, project_id: str, run_id: str, window: Window) -> api.Metrics:
    """The metrics of a run within `window`. Raises NotFoundError, also for an attempt of another run."""
    run = require_run(session, project_id, run_id)
    if window.attempt is None:
        attempts = queries.attempts_of(session, run.id)
    else:
        attempts = [found] if (found := queries.the_attempt(session, run, window.attempt)) else []
    metrics = _metrics(session, run.id, window)
    known = groupby(metrics, key=lambda metric: metric.name)
    series = tuple(_series(session, attempts, name, list(of_name), window) for name, of_name in known)
    return api.Metrics(run=run.id, x=window.x, series=series, gaps=_gaps(session, _parts(attempts, metrics), window))


def _metrics(session: Session, run_id: str, window: Window) -> Sequence[Metric]:
    """The metrics by name, each as every member logged it."""
    wanted = [Metric.run_id == run_id]
    if window.names:
        wanted.append(Metric.name.in_(window.names))
    if window.attempt is not None:
        wanted.append(Metric.attempt_id == window.attempt)
    names = select(Metric.name).where(*wanted).distinct().order_by(Metric.name).limit(MAX_NAMES)
    return session.scalars(
        select(Metric).where(*wanted, Metric.name.in_(names)).order_by(Metric.name, Metric.member_id)
    ).all()


def _series(
    session: Session, attempts: Sequence[Attempt], name: str, metrics: Sequence[Metric], window: Window
) -> api.MetricSeries:
    pieces = list(_pieces(session, _parts(attempts, metrics), window))
    axis = Axis.over(pieces, window.start, window.end, window.buckets)
    return api.MetricSeries(
        name=name,
        unit=_UNITS.get(name, ""),
        n=sum(metric.n for metric in metrics),
        last_step=max(metric.last_step for metric in metrics),
        bucket_width=axis.width,
        points=points(pieces, axis),
    )


def _gaps(session: Session, parts: Sequence[_Part], window: Window) -> tuple[api.MetricGap, ...]:
    """What is lost of the attempts as far as they count, where it stands on the axis."""
    bounds = {part.attempt.id: part.before_step for part in parts}
    query = select(Gap).where(Gap.attempt_id.in_(bounds), Gap.what.in_(IN_METRICS)).order_by(Gap.id).limit(MAX_GAPS)
    began = _began(parts)
    found = []
    for row in session.scalars(query) if bounds else ():
        bound = bounds[row.attempt_id]
        if bound is not None and row.after_step is not None and row.after_step >= bound:
            continue
        by_step = window.x == "step"
        start = row.after_step if by_step else _seconds_since(began, row.after_at)
        end = row.before_step if by_step else _seconds_since(began, row.before_at)
        found.append(api.MetricGap(start=start, end=end, count=row.count, size_bytes=row.size_bytes, what=row.what))
    return tuple(found)


def _seconds_since(began: int, at: int | None) -> float | None:
    return None if at is None else (at - began) / 1e6


def _began(parts: Sequence[_Part]) -> int:
    return next((part.attempt.started_at or part.attempt.created_at for part in parts), 0)


def _pieces(session: Session, parts: Sequence[_Part], window: Window) -> Iterator[Piece]:
    began = _began(parts)
    bounds = [window.start, window.end] if window.x == "step" else [None, None]
    first_step, last_step = (None if bound is None else int(bound) for bound in bounds)
    for part in parts:
        view = View(window.x, began, part.before_step, first_step, last_step)
        for metric in part.metrics:
            yield from pieces_of(session, metric, view)


def _parts(attempts: Sequence[Attempt], metrics: Sequence[Metric]) -> list[_Part]:
    """What each attempt adds to the curve: a retry replaces what was logged from its first step on."""
    parts: list[_Part] = []
    bound: int | None = None
    for attempt in reversed(attempts):
        own = [metric for metric in metrics if metric.attempt_id == attempt.id]
        first = min((metric.first_step for metric in own), default=None)
        if first is not None and (bound is None or first < bound):
            parts.append(_Part(attempt, own, bound))
            bound = first
    return parts[::-1]
