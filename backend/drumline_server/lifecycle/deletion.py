"""How runs are deleted, and when: gone from sight in one transaction, then erased row by row in short ones.

A deleted run has `deleted_at`, which `storage.runs.require_run`, `history.lock_run` and every list leave out. Its entry
in the audit log is what stays of it, beside what it used in the ledger. `erase_part` takes its rows, those that point
at others first, as many as a short transaction holds: killed anywhere, it continues with what is left.

A project keeps ended runs for ever, unless somebody sets bounds, of age or of the size of their telemetry. A loop
measures them, and deletes the oldest beyond what is kept; starred runs stay.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Delete,
    LargeBinary,
    Table,
    bindparam,
    case,
    delete,
    func,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline.contracts.states import TERMINAL_RUN, ArtifactState
from drumline_server.base.errors import RunInUseError
from drumline_server.lifecycle.checkpoints import delete_checkpoints, live_resumers, lock_checkpoints
from drumline_server.storage import history
from drumline_server.storage.blobs import MOVED, Moved
from drumline_server.storage.models import Artifact, Base, Batch, Member, Project, Run, table_of
from drumline_server.storage.models.base import Document
from drumline_server.storage.notifications import ERASURES, announce, run_list

_HOLD_S = 0.02
"""No further statement of a part once it has taken so long..."""
_ROWS = 100
"""...and so many rows at most by each: those of output and metrics are some kilobytes long."""
_LISTED = 100
"""Deleted runs that one round erases by turns."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """Who deletes runs, and why."""

    by: api.PrincipalRef
    why: str
    now: int


def delete_runs(session: Session, numbers: Sequence[int], deletion: Deletion) -> dict[str, RunInUseError]:
    """Deletes those of the runs that may be; of each other one that is there, by id, why not.

    A submission that names a checkpoint of one at the same moment is either stored first, and keeps the run, or is
    refused.
    """
    query = select(Run).where(Run.number.in_(numbers), Run.deleted_at.is_(None)).order_by(Run.id)
    found = session.scalars(query.with_for_update(), execution_options={"populate_existing": True}).all()
    refused = {run.id: _lives(run) for run in found if run.state not in TERMINAL_RUN}
    ended = [run for run in found if run.id not in refused]
    # Before the look for who resumes: a submission that names one waits here, and then finds it deleted.
    lock_checkpoints(session, [run.id for run in ended])
    for run_id, resumer in live_resumers(session, [run.id for run in ended]).items():
        refused[run_id] = _is_resumed_from(run_id, resumer)
    gone = [run for run in ended if run.id not in refused]
    if gone:
        _hide(session, gone, deletion)
    return refused


def _hide(session: Session, runs: Sequence[Run], deletion: Deletion) -> None:
    ids = [run.id for run in runs]
    session.execute(update(Run).where(Run.id.in_(ids)).values(deleted_at=deletion.now))
    delete_checkpoints(session, ids)
    entries = [
        history.AuditEntry("run.delete", run.id, deletion.by, run.project_id, body=_tombstone(run, deletion.why))
        for run in runs
    ]
    history.record_audits(session, entries, now=deletion.now)
    batches = [run.batch_id for run in runs if run.batch_id is not None]
    for batch_id in sorted({*batches}):
        fewer = update(Batch).where(Batch.id == batch_id)
        session.execute(fewer.values(deleted=Batch.deleted + batches.count(batch_id)))
    announce(session, ERASURES, *(run_list(run_id) for run_id in ids))


def _tombstone(run: Run, why: str) -> dict[str, str | int | None]:
    return {
        "job": run.job_name,
        "version": run.version_number,
        "state": run.state,
        "owner": run.submitted_by,
        "created_at": from_micros(run.created_at).isoformat(),
        "ended_at": None if run.ended_at is None else from_micros(run.ended_at).isoformat(),
        "why": why,
    }


def _lives(run: Run) -> RunInUseError:
    return RunInUseError(
        run.id,
        f"Run {run.id} is {run.state}; only a run that has ended can be deleted.",
        hint=f"Stop it first (drumline cancel {run.id}), and delete it once it has ended.",
        context={"state": run.state},
    )


def _is_resumed_from(run_id: str, resumer: str) -> RunInUseError:
    return RunInUseError(
        run_id,
        f"Run {run_id} is kept: run {resumer} resumes from its checkpoint and has not ended.",
        hint=f"Delete it once {resumer} has ended, or cancel that first.",
        context={"resumed_by": resumer},
    )


def deleted_runs(session: Session) -> Sequence[int]:
    """Numbers of deleted runs that are not erased yet; the oldest first."""
    query = select(Run.number).where(Run.deleted_at.is_not(None), _is_followed())
    return session.scalars(query.order_by(Run.number).limit(_LISTED)).all()


def _is_followed() -> ColumnElement[bool]:
    """That rows of it are left, or a later run is there: SQLite counts on from the last number, so that row stays."""
    return (Run.event_seq > 0) | (Run.number < select(func.max(Run.number)).scalar_subquery())


def erase_part(session: Session, number: int) -> bool:
    """Takes some rows of a deleted run; whether any are left."""
    run_id = session.scalar(select(Run.id).where(Run.number == number, Run.deleted_at.is_not(None)))
    if run_id is None:
        return False
    began, gone = time.monotonic(), 0
    for table, column, value in _rows_of(session, run_id, number):
        taken = _ROWS
        while taken == _ROWS:
            result = session.execute(_take(table, column), {"owner": value, "most": _ROWS})
            taken = result.rowcount  # type: ignore[attr-defined] # of a DELETE
            gone += taken
            if gone and time.monotonic() - began > _HOLD_S:  # one that took none yet would begin there again
                return True
    if session.scalar(select(func.max(Run.number))) == number:
        session.execute(update(Run).where(Run.number == number).values(event_seq=0))
        return False
    session.execute(delete(Run).where(Run.number == number))
    return False


def _rows_of(session: Session, run_id: str, number: int) -> Iterator[tuple[Table, str, str | int]]:
    """Where rows of the run are, and by which column and value: first of each member, at last its own."""
    while member := session.scalar(select(Member.id).where(Member.run_id == run_id).order_by(Member.id).limit(1)):
        for table, column in pointing_at("member"):
            yield table, column, member
        yield table_of(Member), "id", member
    for table, column in pointing_at("run"):
        yield table, column, number if column == "run" else run_id


@cache
def pointing_at(parent: str) -> Sequence[tuple[Table, str]]:
    """Tables with a foreign key to that one, and its column; those that point at others of them first."""
    return [
        (table, key.parent.name)
        for table in reversed(Base.metadata.sorted_tables)
        for key in sorted(table.foreign_keys, key=lambda key: key.parent.name)
        if key.column.table.name == parent
    ]


@cache
def _take(table: Table, owner: str) -> Delete:
    key: list[Column[Any]] = [*table.primary_key]  # Any: texts and integers
    some = select(*key).where(table.c[owner] == bindparam("owner")).limit(bindparam("most"))
    # By the key alone: asked for the owner too, SQLite reads all that it has in each part.
    return delete(table).where(tuple_(*key).in_(some) if len(key) > 1 else key[0].in_(some))


_DAY_US = 86_400 * 1_000_000
_AT_ONCE = 50
"""Runs that are deleted, or measured, at once."""
DRUMLINE = api.PrincipalRef(name="drumline")
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
    session: Session, project_id: str, wanted: api.RetentionChange, *, by: api.PrincipalRef, now: int
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
    """What an ended run takes, in bytes: what its members reported, in the database or the store, and its artifacts."""
    members = session.scalars(select(Member.id).join(Run, Run.id == Member.run_id).where(Run.number == number)).all()
    total = 0
    for table, column in pointing_at(table_of(Member).name):
        sizes = [_size_of(session, each) for each in table.c if isinstance(each.type, (LargeBinary, Document))]
        if table is table_of(Artifact):
            sizes.append(case((table.c.state != ArtifactState.LOST, table.c.size_bytes), else_=0))
        sizes += [_stored_size(each) for each in MOVED if each.table is table]
        query = select(*(func.sum(size) for size in sizes)).where(table.c[column] == bindparam("member"))
        for member in members if sizes else ():
            total += sum(size or 0 for size in session.execute(query, {"member": member}).one())
    return total


def _size_of(session: Session, column: ColumnElement[object]) -> ColumnElement[int]:
    """As it is stored: neither reads a value that lies apart from its row."""
    of = func.pg_column_size if session.get_bind().dialect.name == "postgresql" else func.length
    return func.coalesce(of(column), 0)


def _stored_size(moved: Moved) -> ColumnElement[int]:
    return case((moved.table.c.location.is_not(None), moved.table.c[moved.size]), else_=0)


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
