"""Curves of several runs on one axis: the same bucket is the same stretch in each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.base.errors import InvalidRequestError
from drumline_server.storage import runs
from drumline_server.storage.models import Metric
from drumline_server.telemetry import metrics
from drumline_server.telemetry.buckets import Axis, Piece, Span, numbered_points
from drumline_server.telemetry.metrics import Part, Window

MAX_RUNS = 100
MAX_NAMES = 100
MAX_BUCKETS = 250_000
"""Of all curves of one answer: some 20 MB of JSON."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Which metrics of runs to show on which axis; `start` and `end` bound it, and it has at most so many buckets.

    `relative` counts seconds from when each run began, `time` from 1970 UTC on.
    """

    names: tuple[str, ...]
    x: Literal["step", "time", "relative"]
    start: float | None
    end: float | None
    buckets: int

    def window(self) -> Window:
        """How one run of it is read."""
        axis: Literal["step", "time"] = "step" if self.x == "step" else "time"
        since = 0 if self.x == "time" else None
        return Window(self.names, axis, self.start, self.end, self.buckets, since=since)


def find_spans(session: Session, run: tuple[str, str], comparison: Comparison) -> list[Span]:
    """What the axis must know of each curve of a run, given by its project's id and its own. Raises NotFoundError."""
    window = comparison.window()
    _, curves = _read(session, *run, window)
    return [Span.of(pieces, window.start, window.end, window.buckets) for _, pieces in curves if pieces]


def make_axis(spans: Sequence[Span], comparison: Comparison) -> Axis:
    """The axis of all curves. Raises InvalidRequestError where they are too many for its buckets."""
    most = MAX_BUCKETS // len(spans) if spans else MAX_BUCKETS
    if comparison.buckets > most:
        message = (
            f"{len(spans)} curves of {comparison.buckets} buckets are too much; of so many each has at most {most}"
        )
        raise InvalidRequestError("buckets", message, hint=f"Ask for {most} buckets, or for fewer runs or names.")
    return Axis.across(spans, comparison.start, comparison.end, comparison.buckets)


def read_compared(
    session: Session, run: tuple[str, str], comparison: Comparison, axis: Axis
) -> tuple[api.ComparedRun, list[api.ComparedCurve]]:
    """A run and its curves, by name, on the axis. Raises NotFoundError."""
    window = comparison.window()
    project_id, run_id = run
    parts, curves = _read(session, project_id, run_id, window)
    told = api.ComparedRun(run=run_id, began=metrics.began(parts), gaps=metrics.gaps_of(session, parts, window))
    return told, [
        api.ComparedCurve(
            run=run_id,
            name=of_name[0].name,
            unit=metrics.UNITS.get(of_name[0].name, ""),
            n=sum(metric.n for metric in of_name),
            last_step=max(metric.last_step for metric in of_name),
            points=numbered_points(pieces, axis),
        )
        for of_name, pieces in curves
    ]


def _read(
    session: Session, project_id: str, run_id: str, window: Window
) -> tuple[Sequence[Part], Iterator[tuple[Sequence[Metric], Sequence[Piece]]]]:
    """The parts of the run that count, and each curve as its rows and pieces."""
    run = runs.require_run(session, project_id, run_id)
    attempts = runs.attempts_of(session, run.id)
    known = metrics.find_metrics(session, run.id, window)
    parts = metrics.parts_of(attempts, known)
    of_run = replace(window, since=metrics.began(parts)) if window.since is None else window

    return parts, metrics.curves_of(session, attempts, known, of_run)
