"""How long a project keeps ended runs: by age and by the size of their telemetry. Off unless somebody sets it.

A loop measures ended runs, and deletes the oldest beyond what is kept, some in each transaction. Starred runs stay, as
do those that a live run resumes from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, LargeBinary, bindparam, func, or_, select, tuple_, update
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.api import PrincipalRef
from drumline_server.lifecycle.deletion import Deletion, delete_runs, pointing_at
from drumline_server.storage import history
from drumline_server.storage.models import Member, Project, Run, table_of
from drumline_server.storage.models.base import Document

_DAY_US = 86_400 * 1_000_000
_AT_ONCE = 50
"""Runs that are deleted, or measured, at once."""
DRUMLINE = PrincipalRef(name="drumline")
"""Who deletes what is not kept any longer."""
Border = tuple[int, str]
"""End and id of the run that was looked at last."""


def get_retention(session: Session, project_id: str) -> api.Retention:
    """What the project keeps, and how much there is of what it counts."""
    project = session.get_one(Project, project_id, populate_existing=True)
    measured = select(func.coalesce(func.sum(Run.telemetry_bytes), 0)).where(*_ended(project_id))
    return api.Retention(
        days=project.retention_days,
        telemetry_bytes=project.retention_bytes,
        measured_bytes=int(session.execute(measured).scalar_one() or 0),
    )


def set_retention(
    session: Session, project_id: str, wanted: api.RetentionChange, *, by: PrincipalRef, now: int
) -> api.Retention:
    """What the project keeps from now on; None for all."""
    values = {"retention_days": wanted.days, "retention_bytes": wanted.telemetry_bytes}
    session.execute(update(Project).where(Project.id == project_id).values(**values))
    body = wanted.model_dump(mode="json")
    history.record_audit(session, "retention.set", project_id, principal=by, project_id=project_id, now=now, body=body)
    return get_retention(session, project_id)


def deleted_from(session: Session, run: Run) -> int | None:
    """When the run is to be deleted for its age, if it is; it is not where it is starred by then."""
    days = session.scalar(select(Project.retention_days).where(Project.id == run.project_id))
    return None if days is None or run.ended_at is None or run.starred_at else run.ended_at + days * _DAY_US


def retaining_projects(session: Session) -> Sequence[str]:
    """Projects that do not keep everything."""
    kept = or_(Project.retention_days.is_not(None), Project.retention_bytes.is_not(None))
    return session.scalars(select(Project.id).where(kept).order_by(Project.id)).all()


def unmeasured_runs(session: Session, project_id: str) -> Sequence[int]:
    """Some ended runs whose telemetry was not measured yet, where the project has a bound of it."""
    if session.scalar(select(Project.retention_bytes).where(Project.id == project_id)) is None:
        return []
    query = select(Run.number).where(*_ended(project_id), Run.telemetry_bytes.is_(None))
    return session.scalars(query.order_by(Run.ended_at, Run.id).limit(_AT_ONCE)).all()


def measure_run(session: Session, number: int) -> int:
    """What the telemetry of an ended run takes in the database, in bytes: what its members reported."""
    members = session.scalars(select(Member.id).join(Run, Run.id == Member.run_id).where(Run.number == number)).all()
    total = 0
    for table, column in pointing_at(table_of(Member).name):
        sizes = [_size_of(session, each) for each in table.c if isinstance(each.type, (LargeBinary, Document))]
        query = select(*(func.sum(size) for size in sizes)).where(table.c[column] == bindparam("member"))
        for member in members if sizes else ():
            total += sum(size or 0 for size in session.execute(query, {"member": member}).one())
    return total


def _size_of(session: Session, column: ColumnElement[object]) -> ColumnElement[int]:
    """As it is stored: neither reads a value that lies apart from its row."""
    of = func.pg_column_size if session.get_bind().dialect.name == "postgresql" else func.length
    return func.coalesce(of(column), 0)


def note_sizes(session: Session, sizes: Mapping[int, int]) -> None:
    """Keeps what was measured."""
    known = update(table_of(Run)).where(Run.number == bindparam("of")).values(telemetry_bytes=bindparam("size"))
    session.execute(known, [{"of": number, "size": size} for number, size in sizes.items()])


@dataclass(frozen=True, slots=True)
class Beyond:
    """Runs that a project does not keep, by number, each with the reason; and where the next ones begin."""

    runs: Mapping[int, str]
    border: Border | None
    """None where there are no more."""


def find_beyond(session: Session, project_id: str, after: Border, *, now: int) -> Beyond:
    """Some runs that the project does not keep, the oldest first, from behind the border."""
    project = session.get_one(Project, project_id, populate_existing=True)
    query = select(Run.ended_at, Run.id, Run.number, Run.telemetry_bytes)
    query = query.where(*_ended(project_id), Run.starred_at.is_(None), tuple_(Run.ended_at, Run.id) > tuple_(*after))
    oldest = session.execute(query.order_by(Run.ended_at, Run.id).limit(_AT_ONCE)).all()
    excess = _excess_bytes(session, project)
    before = None if project.retention_days is None else now - project.retention_days * _DAY_US
    found: dict[int, str] = {}
    ends = [row[0] or 0 for row in oldest]
    for ended_at, (_, _, number, size) in zip(ends, oldest, strict=True):
        if before is not None and ended_at < before:
            found[number] = f"ended more than {project.retention_days} days ago"
        elif excess > 0:
            found[number] = f"the project keeps {project.retention_bytes} bytes of telemetry"
        else:
            break
        excess -= size or 0
    more = len(found) == len(oldest) == _AT_ONCE
    return Beyond(found, (ends[-1], oldest[-1][1]) if more else None)


def delete_beyond(session: Session, beyond: Beyond, *, now: int) -> None:
    """Deletes those that nobody starred meanwhile. One that cannot be deleted now is looked at in the next round."""
    query = select(Run.number).where(Run.number.in_(beyond.runs), Run.starred_at.is_(None))
    left = session.scalars(query.order_by(Run.number)).all()
    for reason in sorted(set(beyond.runs.values())):
        numbers = [number for number in left if beyond.runs[number] == reason]
        delete_runs(session, numbers, Deletion(DRUMLINE, reason, now))


def _excess_bytes(session: Session, project: Project) -> int:
    if project.retention_bytes is None:
        return 0
    total = session.scalar(select(func.sum(Run.telemetry_bytes)).where(*_ended(project.id)))
    return int(total or 0) - project.retention_bytes


def _ended(project_id: str) -> tuple[ColumnElement[bool], ...]:
    return Run.project_id == project_id, Run.ended_at.is_not(None), Run.deleted_at.is_(None)
