"""What is compared: metrics of several runs on one axis, the replicas of one run, and the parts of a reduction.

The same bucket of an axis is the same stretch in each curve; the names of a run's metrics may be thousands. Of
replicas: how long each computes in traced steps and for which one others wait; of a reduction, which part stands apart.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, NamedTuple

from sqlalchemy import ColumnElement, Row, func, not_, or_, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.arrays import ArraySummary
from drumline_server.base.callers import decode_cursor, encode_cursor, page_of
from drumline_server.base.errors import InvalidRequestError
from drumline_server.storage import runs
from drumline_server.storage.models import Attempt, Device, Gap, Hold, Host, Member, Metric, Profile
from drumline_server.storage.runs import require_run
from drumline_server.telemetry import metrics
from drumline_server.telemetry.buckets import EXACT, Axis, Piece, Span, numbered_points
from drumline_server.telemetry.metrics import MAX_GROUPED, SPEED, UNITS, Part, Window, group_of

MAX_RUNS = 100
MAX_NAMES = 100
MAX_BUCKETS = 250_000
"""Of all curves of one answer: some 20 MB of JSON."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Which metrics of runs to show on which axis; `start` and `end` bound it, and it has at most so many buckets.

    `relative` counts seconds from when each run began, `time` from 1970 UTC on. Curves have the `columns` that are
    named, those of the runs in `whole` all of them, in values of so many significant `digits`.
    """

    names: tuple[str, ...]
    x: Literal["step", "time", "relative"]
    start: float | None
    end: float | None
    buckets: int
    columns: frozenset[api.CurveColumn] = frozenset(api.CURVE_COLUMNS)
    whole: frozenset[str] = frozenset()
    digits: int = EXACT

    def window(self) -> Window:
        """How one run of it is read."""
        axis: Literal["step", "time"] = "step" if self.x == "step" else "time"
        since = 0 if self.x == "time" else None
        return Window(self.names, axis, self.start, self.end, self.buckets, since=since)

    @property
    def runs_at_once(self) -> int:
        """Of one read: what each run asks for by itself takes longer than a few curves; many take a read's time."""
        return max(1, min(10, MAX_NAMES // len(self.names)))


def find_spans(session: Session, project_id: str, run_ids: Sequence[str], comparison: Comparison) -> list[Span]:
    """What the axis must know of each curve of the runs. Raises NotFoundError."""
    window = comparison.window()
    curves = (pieces for _, _, of_run in _read(session, project_id, run_ids, window) for _, pieces in of_run)
    return [Span.of(pieces, window.start, window.end, window.buckets) for pieces in curves if pieces]


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
    session: Session, project_id: str, run_ids: Sequence[str], comparison: Comparison, axis: Axis
) -> list[tuple[api.ComparedRun, list[api.ComparedCurve]]]:
    """The runs, each with its curves by name, on the axis. Raises NotFoundError."""
    window = comparison.window()
    lossy = select(Gap.attempt_id).join(Attempt, Attempt.id == Gap.attempt_id).where(Attempt.run_id.in_(run_ids))
    found, having = [], set(session.scalars(lossy.distinct()))
    for run_id, parts, curves in _read(session, project_id, run_ids, window):
        columns = api.CURVE_COLUMNS if run_id in comparison.whole else comparison.columns
        gaps = metrics.gaps_of(session, parts, window) if having & {part.attempt.id for part in parts} else ()
        drawn = [
            api.ComparedCurve(
                run=run_id,
                name=of_name[0].name,
                unit=metrics.UNITS.get(of_name[0].name, ""),
                n=sum(metric.n for metric in of_name),
                last_step=max(metric.last_step for metric in of_name),
                points=numbered_points(pieces, axis, columns, comparison.digits),
            )
            for of_name, pieces in curves
        ]
        found.append((api.ComparedRun(run=run_id, began=metrics.began(parts), gaps=gaps), drawn))
    return found


def _read(
    session: Session, project_id: str, run_ids: Sequence[str], window: Window
) -> Iterator[tuple[str, Sequence[Part], Iterator[tuple[Sequence[Metric], Sequence[Piece]]]]]:
    """Of each run the parts that count, and each curve as its rows and pieces."""
    found = runs.require_runs(session, project_id, run_ids)
    of_all = session.scalars(select(Attempt).where(Attempt.run_id.in_(run_ids)).order_by(Attempt.number)).all()
    known = metrics.find_metrics(session, run_ids, window)
    for run in found:
        attempts = [attempt for attempt in of_all if attempt.run_id == run.id]
        of_run = [metric for metric in known if metric.run_id == run.id]
        parts = metrics.parts_of(attempts, of_run)
        since = metrics.began(parts) if window.since is None else window.since
        yield run.id, parts, metrics.curves_of(session, attempts, of_run, replace(window, since=since))


@dataclass(frozen=True, slots=True)
class Sought:
    """Which names: those that hold `search`, ignoring case, and belong to `group`; of any group if it is `None`.

    The group of `train/loss` is `train`; a name without `/`, or with nothing before it, is of the group ``.
    """

    search: str = ""
    group: str | None = None

    def conditions(self) -> Iterator[ColumnElement[bool]]:
        """What is true of the names. SQLite knows the case of ASCII letters only."""
        if self.search:
            yield Metric.name.icontains(self.search, autoescape=True)  # of both sides by the same rule
        if self.group:
            # LIKE would ignore case on SQLite, where `Train` and `train` are two groups.
            yield func.substr(Metric.name, 1, len(self.group) + 1) == f"{self.group}/"
        elif self.group is not None:
            yield or_(not_(Metric.name.contains("/")), Metric.name.startswith("/"))


def list_names(
    session: Session, project_id: str, run_id: str, sought: Sought, *, cursor: str | None, limit: int
) -> api.Page[api.MetricName]:
    """The metrics of a run that are sought, by name, of all its attempts. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    query = select(Metric.name, func.sum(Metric.n), func.min(Metric.first_step), func.max(Metric.last_step))
    query = query.where(Metric.run_id == run.id, *sought.conditions())
    if cursor is not None:
        (after,) = decode_cursor(cursor, str)
        query = query.where(Metric.name > after)
    rows = session.execute(query.group_by(Metric.name).order_by(Metric.name).limit(limit + 1)).all()
    return page_of(rows, limit, item=_view_name, key=lambda row: (row[0],))


def read_groups(session: Session, project_id: str, run_id: str, sought: Sought) -> api.MetricGroups:
    """How many names each group has, and which steps all of them span. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    query = select(Metric.name, func.min(Metric.first_step), func.max(Metric.last_step))
    query = query.where(Metric.run_id == run.id, *sought.conditions())
    rows = session.execute(query.group_by(Metric.name).order_by(Metric.name).limit(MAX_GROUPED + 1)).all()
    kept = rows[:MAX_GROUPED]
    counts: dict[str, int] = {}
    for name, _, _ in kept:
        group = group_of(name)
        counts[group] = counts.get(group, 0) + 1
    # What the engine measures itself comes last: a run is opened for what its program learns.
    ordered = sorted(counts, key=lambda group: (group == SPEED, group))
    return api.MetricGroups(
        groups=tuple(api.MetricGroup(group=group, names=counts[group]) for group in ordered),
        total=len(kept),
        complete=len(rows) <= MAX_GROUPED,
        first_step=min((first for _, first, _ in kept), default=None),
        last_step=max((last for _, _, last in kept), default=None),
    )


def list_shared(
    session: Session, project_id: str, run_ids: Sequence[str], sought: Sought, *, cursor: str | None, limit: int
) -> api.Page[api.SharedName]:
    """The metrics that are sought of any of the runs, by name. Runs of other projects add none."""
    query = select(Metric.name, func.count(Metric.run_id.distinct())).where(
        Metric.run_id.in_(run_ids), Metric.project_id == project_id, *sought.conditions()
    )
    if cursor is not None:
        (after,) = decode_cursor(cursor, str)
        query = query.where(Metric.name > after)
    rows = session.execute(query.group_by(Metric.name).order_by(Metric.name).limit(limit + 1)).all()
    return page_of(rows, limit, item=_shared_name, key=lambda row: (row[0],))


def _shared_name(row: Row[str, int]) -> api.SharedName:
    name, runs = row
    return api.SharedName(name=name, unit=UNITS.get(name, ""), runs=runs)


def _view_name(row: Row[str, int, int, int]) -> api.MetricName:
    name, n, first_step, last_step = row
    return api.MetricName(name=name, unit=UNITS.get(name, ""), n=int(n), first_step=first_step, last_step=last_step)


MOST_TRACED = 8
"""Newest traced steps that are compared: some 30 ms for the 2000 traces of 256 processes."""
_LEAST_TRACED = 3
"""Below which no replica is named."""
_NAMED_SHARE, _NAMED_PERCENT = 0.8, 10.0
_MS = 1e6
_Traced = dict[str, list[tuple[float, float, float]]]
"""By device, of each step: milliseconds computing, in collectives alone, idle."""


def read_replica_times(
    session: Session, project_id: str, run_id: str, attempt_id: str | None, *, cursor: str | None, limit: int
) -> api.ReplicaTimes:
    """Of an attempt, the newest if unnamed. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    after = 0 if cursor is None else int(decode_cursor(cursor, int)[0])
    attempt = runs.the_attempt(session, run, attempt_id)
    steps, span_ms, traced = _traced_steps(session, attempt) if attempt else ((), 0.0, {})
    if attempt is None or not traced:
        why: Literal["not_traced", "not_told"] = "not_told" if steps else "not_traced"
        ids = {"run": run.id, "attempt": attempt.id if attempt else None}
        return api.ReplicaTimes(**ids, unmeasured=why, steps=steps, devices=())
    least = Counter(min(traced, key=lambda device: traced[device][place][1]) for place in range(len(steps)))
    devices = [
        _replica_time(one, traced[one.device], least[one.device])
        for one in _placed(session, attempt.id)
        if one.device in traced
    ]
    devices.sort(key=lambda one: one.collective_ms)
    shown = devices[after : after + limit]
    return api.ReplicaTimes(
        run=run.id,
        attempt=attempt.id,
        unmeasured=None,
        steps=steps,
        span_ms=span_ms,
        slowest=_slowest(devices, traced, len(steps), span_ms),
        devices=tuple(shown),
        next=encode_cursor(after + limit) if after + limit < len(devices) else None,
    )


class _Placed(NamedTuple):
    device: str
    host_name: str
    replica: int | None
    logical: int | None


def _placed(session: Session, attempt_id: str) -> Iterator[_Placed]:
    """By replica and logical position."""
    query = (
        select(Device.id, Host.name, Hold.replica, Hold.logical)
        .join(Hold, Hold.device_id == Device.id)
        .join(Host, Host.id == Device.host_id)
        .where(Hold.attempt_id == attempt_id)
        .order_by(Hold.replica, Hold.logical, Device.id)
    )
    return (_Placed(*row) for row in session.execute(query))


def _traced_steps(session: Session, attempt: Attempt) -> tuple[tuple[int, ...], float, _Traced]:
    """The newest steps that all members traced, oldest first, how long they took, and what their devices did."""
    members = session.scalar(select(func.count()).where(Member.attempt_id == attempt.id))
    whole = (
        select(Profile.step)
        .where(Profile.attempt_id == attempt.id, Profile.run_id == attempt.run_id)
        .group_by(Profile.step)
        .having(func.count(Profile.member_id.distinct()) == members)
        .order_by(Profile.step.desc())
        .limit(MOST_TRACED)
    )
    steps = sorted(session.scalars(whole))
    columns = select(Profile.step, Profile.span_ns, Profile.times).where(
        Profile.attempt_id == attempt.id, Profile.run_id == attempt.run_id, Profile.step.in_(steps)
    )
    by_step: dict[int, _Traced] = defaultdict(dict)
    spans = []
    for step, span_ns, times in session.execute(columns):
        spans.append(span_ns / _MS)
        for device, computing, collective, both, idle in times or ():
            by_step[step][device] = [(computing / _MS, (collective - both) / _MS, idle / _MS)]
    if not all(by_step[step].keys() == by_step[steps[0]].keys() for step in steps):
        return tuple(steps), 0.0, {}
    traced = {device: [by_step[step][device][0] for step in steps] for device in by_step[steps[0]]} if steps else {}
    return tuple(steps), median(spans) if spans else 0.0, traced


def _replica_time(placed: _Placed, times: Sequence[tuple[float, float, float]], waited_least: int) -> api.ReplicaTime:
    computing, collective, idle = (median(column) for column in zip(*times, strict=True))
    return api.ReplicaTime(
        device=placed.device,
        host_name=placed.host_name,
        replica=placed.replica or 0,
        logical=placed.logical or 0,
        computing_ms=computing,
        collective_ms=collective,
        idle_ms=idle,
        waited_least=waited_least,
    )


def _slowest(devices: Sequence[api.ReplicaTime], traced: _Traced, steps: int, span_ms: float) -> api.SlowReplica | None:
    """All leave a collective together: who waits least in them comes last, by so much as the next one waits longer."""
    if steps < _LEAST_TRACED or len(devices) < 2:
        return None
    one = max(devices, key=lambda each: each.waited_least)
    others = [times for device, times in traced.items() if device != one.device]
    gains = [min(times[place][1] for times in others) - traced[one.device][place][1] for place in range(steps)]
    gain_ms = median(gains)
    if one.waited_least < _NAMED_SHARE * steps or 100 * gain_ms < _NAMED_PERCENT * span_ms:
        return None
    return api.SlowReplica(
        replica=one.replica,
        device=one.device,
        host_name=one.host_name,
        gain_percent=100 * gain_ms / span_ms,
        gain_ms=gain_ms,
        waited_least=one.waited_least,
    )


MAX_OUTLIERS = 32
LEAST_REPLICAS = 4
"""Of fewer one can't say who is the odd one."""
MOST_DEVIATIONS = 3.5
_PER_MAD = 1.4826
"""Standard deviations of normally distributed values in one median absolute deviation."""

Figures = Mapping[int, float]
"""By replica."""


def find_outliers(
    inputs: Sequence[ArraySummary], counts: Sequence[int], op: str, *, result_shape: Sequence[int]
) -> list[api.ReductionOutlier]:
    """Which replicas stand apart: not finite ones first, then by how far they are away; one may be by two figures.

    By its own value, the norm of its array, or its cosine to the result: more than 3.5 standard deviations from the
    median of all replicas, as the median absolute deviation estimates these, so that up to half of the replicas may be
    odd without hiding each other. What is close all the same is none: within a tenth of the median norm, a tenth of a
    cosine, a millionth of the median value.
    """
    if len(inputs) < LEAST_REPLICAS:
        return []
    odd = _not_finite(inputs)
    if len(result_shape) == 0:
        found = _apart("value", _own_values(inputs, counts, op), lambda middle: 1e-6 * abs(middle))
    else:
        alike = len({part.shape for part in inputs}) == 1
        norms = {at: part.norm for at, part in enumerate(inputs) if part.norm is not None} if alike else {}
        cosines = {at: part.cosine for at, part in enumerate(inputs) if part.cosine is not None}
        found = _apart("norm", norms, lambda middle: 0.1 * middle)
        found += [one for one in _apart("cosine", cosines, lambda _: 0.1) if one.value < one.median]
    return odd + sorted(found, key=_distance, reverse=True)


def _not_finite(inputs: Sequence[ArraySummary]) -> list[api.ReductionOutlier]:
    """Where it is most replicas, none of them stands apart."""
    bad = {at: part.nan_count + part.inf_count for at, part in enumerate(inputs) if part.nan_count + part.inf_count}
    if 2 * len(bad) >= len(inputs):
        return []
    return [
        api.ReductionOutlier(replica=at, by="not_finite", value=count, median=0.0, deviations=None)
        for at, count in sorted(bad.items(), key=lambda one: -one[1])
    ]


def _own_values(inputs: Sequence[ArraySummary], counts: Sequence[int], op: str) -> Figures:
    """Each one's mean for a mean and sum for a sum, of those whose numbers are all finite."""
    return {
        at: part.mean * (count if op == "sum" else 1)
        for at, (part, count) in enumerate(zip(inputs, counts, strict=True))
        if part.mean is not None and part.nan_count + part.inf_count == 0
    }


def _apart(by: str, figures: Figures, near: Callable[[float], float]) -> list[api.ReductionOutlier]:
    if len(figures) < LEAST_REPLICAS:
        return []
    middle = median(figures.values())
    away = {replica: abs(value - middle) for replica, value in figures.items()}
    deviation = _PER_MAD * median(away.values())
    return [
        api.ReductionOutlier.model_validate(
            {
                "replica": replica,
                "by": by,
                "value": figures[replica],
                "median": middle,
                "deviations": distance / deviation if deviation else None,
            }
        )
        for replica, distance in away.items()
        if distance > max(near(middle), MOST_DEVIATIONS * deviation)
    ]


def _distance(one: api.ReductionOutlier) -> float:
    return float("inf") if one.deviations is None else one.deviations
