"""The names of a run's metrics: thousands of them can be searched, grouped and paged."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Row, func, not_, or_, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.base.callers import decode_cursor, page_of
from drumline_server.storage.models import Metric
from drumline_server.storage.runs import require_run
from drumline_server.telemetry.metrics import UNITS

MAX_GROUPED = 20_000
"""Names of one answer about groups: beyond, it says that it is not complete."""
_SPEED = "sys"


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
            yield func.lower(Metric.name).contains(self.search.lower(), autoescape=True)
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
    return page_of(rows, limit, item=_name, key=lambda row: (row[0],))


def read_groups(session: Session, project_id: str, run_id: str, sought: Sought) -> api.MetricGroups:
    """How many names each group has, and which steps all of them span. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    query = select(Metric.name, func.min(Metric.first_step), func.max(Metric.last_step))
    query = query.where(Metric.run_id == run.id, *sought.conditions())
    rows = session.execute(query.group_by(Metric.name).order_by(Metric.name).limit(MAX_GROUPED + 1)).all()
    kept = rows[:MAX_GROUPED]
    counts: dict[str, int] = {}
    for name, _, _ in kept:
        group = _group_of(name)
        counts[group] = counts.get(group, 0) + 1
    # What the engine measures itself comes last: a run is opened for what its program learns.
    ordered = sorted(counts, key=lambda group: (group == _SPEED, group))
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


def _group_of(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""


def _name(row: Row[str, int, int, int]) -> api.MetricName:
    name, n, first_step, last_step = row
    return api.MetricName(name=name, unit=UNITS.get(name, ""), n=int(n), first_step=first_step, last_step=last_step)
