"""What people do to runs after the fact: asked to stop, labels, a note, a star, whether lists show them, and deletion.

Runs that wait end at once, programs get their grace. A batch is only marked by the request, and a change of many runs
only noted, with the runs that match then. A loop of the server does it, a part in each transaction, so that 10 000 of
them keep nobody waiting; what a restart interrupts continues from its mark.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import new_id
from drumline.contracts.problems import ProblemCode
from drumline.contracts.states import TERMINAL_RUN, RunState
from drumline_server.base.errors import DrumlineError, InvalidRequestError, NotFoundError
from drumline_server.lifecycle.deletion import Deletion, delete_runs
from drumline_server.lifecycle.run_changes import ask_to_stop, audit_mark, mark
from drumline_server.services import batches
from drumline_server.services.run_lists import ListQuery, RunList
from drumline_server.services.runs import whole_run
from drumline_server.storage import history
from drumline_server.storage.history import lock_run
from drumline_server.storage.models import (
    Batch,
    BulkChange,
    Run,
    RunView,
    principal_columns,
    principal_in,
    set_principal,
)
from drumline_server.storage.notifications import BULKS, CANCELS, announce
from drumline_server.storage.runs import find_deletion, find_run, no_run


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Who wants which run to stop."""

    project_id: str
    run_id: str
    requested_by: api.PrincipalRef
    body: api.CancelRequest


@dataclass(frozen=True, slots=True)
class BatchCancellation:
    """Who wants which batch to stop; without `grace_s` each run has its own grace."""

    project_id: str
    batch_id: str
    requested_by: api.PrincipalRef
    grace_s: float | None


def cancel(session: Session, request: Cancellation, *, now: int) -> api.Run:
    """Stops a run, or begins to. Asking again while it stops changes nothing but the grace period.

    Raises NotFoundError, or DrumlineError already_terminal for a run that ended otherwise.
    """
    run = lock_run(session, request.run_id)
    if run is None or run.project_id != request.project_id:
        raise no_run(session, request.project_id, request.run_id)
    if run.state in TERMINAL_RUN:
        return _answer_ended(session, run, now)
    ask_to_stop(session, run, request.requested_by, request.body.grace_s, now)
    session.refresh(run)
    return whole_run(session, run, now=now)


def cancel_batch(session: Session, request: BatchCancellation, *, now: int) -> None:
    """Marks the batch: no more runs of it are queued, and `cancel_part` asks those that there are to stop.

    Asking again changes nothing but the grace period of those that were not asked yet. Raises NotFoundError.
    """
    batches.close(session, request.project_id, request.batch_id)
    batch = session.get_one(Batch, request.batch_id, populate_existing=True)
    if batch.cancel_requested_at is None:
        batch.cancel_requested_at = now
        set_principal(batch, "cancel_requested_by", request.requested_by)
        by, project_id = request.requested_by, request.project_id
        history.record_audit(session, "batch.cancel", batch.id, principal=by, project_id=project_id, now=now)
    if request.grace_s is not None:
        batch.cancel_grace_s = request.grace_s
    announce(session, CANCELS)


def _answer_ended(session: Session, run: Run, now: int) -> api.Run:
    if run.state == RunState.CANCELLED:
        return whole_run(session, run, now=now)
    raise DrumlineError(
        ProblemCode.ALREADY_TERMINAL,
        f"Run {run.id} has already ended: {run.state}.",
        context={"run": run.id, "state": run.state},
    )


_MOST_VIEWS = 200


def patch(
    session: Session, project_id: str, run_id: str, change: api.RunPatch, *, by: api.PrincipalRef, now: int
) -> api.Run:
    """Changes what people add to a run. Raises NotFoundError; InvalidRequestError for more labels than it may have."""
    run = lock_run(session, run_id)
    if run is None or run.project_id != project_id:
        raise no_run(session, project_id, run_id)
    if mark(session, run, change, now=now):
        audit_mark(session, run, change.model_dump(mode="json", exclude_none=True), by, now)
    return whole_run(session, run, now=now)


def delete_run(
    session: Session, project_id: str, run_id: str, why: str, *, by: api.PrincipalRef, now: int
) -> api.DeletedRun:
    """Deletes a run; of one that is deleted already, who did it. Raises NotFoundError, RunInUseError."""
    run = find_run(session, project_id, run_id)
    if run is not None:
        refused = delete_runs(session, [run.number], Deletion(by, why, now))
        if refused:
            raise refused[run_id]
    act = find_deletion(session, project_id, run_id)
    if act is None:
        raise NotFoundError("run", run_id)
    return api.DeletedRun.model_validate(
        {
            "run": run_id,
            "job": act.body["job"],
            "deleted_at": act.at,
            "deleted_by": principal_in(act, "principal"),
            "why": act.body["why"],
        }
    )


def begin_bulk(
    session: Session, project_id: str, request: api.BulkRequest, *, by: api.PrincipalRef, now: int
) -> api.BulkChange:
    """Notes a change of the runs that match now. Raises NotFoundError for a run that is named and not there,
    FilterError, InvalidRequestError for too many runs.
    """
    numbers = array("q", _matching(session, project_id, request, now))
    change = BulkChange(
        id=new_id("blk"),
        project_id=project_id,
        change=request.action.model_dump(mode="json"),
        **principal_columns("asked_by", by),
        state=api.BulkState.RUNNING if numbers else api.BulkState.DONE,
        runs=numbers.tobytes(),
        total=len(numbers),
        done=0,
        changed=0,
        created_at=now,
        ended_at=None if numbers else now,
    )
    session.add(change)
    session.flush()
    what = {"action": request.action.model_dump(mode="json", exclude_defaults=True), "runs": len(numbers)}
    if request.where is not None:
        what["where"] = request.where
    history.record_audit(session, "run.bulk", change.id, principal=by, project_id=project_id, now=now, body=what)
    announce(session, BULKS)
    return _view_bulk(change)


def _matching(session: Session, project_id: str, request: api.BulkRequest, now: int) -> Sequence[int]:
    if request.where is not None:
        query = ListQuery(project_id, where=request.where, with_archived=request.archived, now=now)
        return RunList(session, query).matching(api.MAX_BULK)
    wanted = set(request.runs)
    found = select(Run.id, Run.number).where(Run.id.in_(wanted), Run.project_id == project_id)
    rows = session.execute(found.where(Run.deleted_at.is_(None)).order_by(Run.number)).all()
    if len(rows) < len(wanted):
        raise no_run(session, project_id, min(wanted - {row.id for row in rows}))
    return [row.number for row in rows]


def get_bulk(session: Session, project_id: str, bulk_id: str) -> api.BulkChange:
    """A change of many runs, and how far it is. Raises NotFoundError."""
    change = session.get(BulkChange, bulk_id)
    if change is None or change.project_id != project_id:
        raise NotFoundError("bulk change", bulk_id)
    return _view_bulk(change)


def _view_bulk(change: BulkChange) -> api.BulkChange:
    shown = ("id", "state", "total", "done", "changed", "created_at", "ended_at")
    return api.BulkChange.model_validate(
        {
            "action": change.change,
            "asked_by": principal_in(change, "asked_by"),
            "refused": change.refused or (),
            **{name: getattr(change, name) for name in shown},
        }
    )


def list_views(session: Session, project_id: str) -> api.Page[api.RunView]:
    """The project's saved views by name; there are at most as many as one page has."""
    query = select(RunView).where(RunView.project_id == project_id).order_by(RunView.name)
    return api.Page(items=tuple(_view_view(row) for row in session.scalars(query)))


def save_view(
    session: Session, project_id: str, name: str, view: api.RunListView, *, by: api.PrincipalRef, now: int
) -> api.RunView:
    """Saves a view under its name, in place of one that had it. Raises FilterError where it shows no list, and
    InvalidRequestError where the project has too many.
    """
    listed = RunList(session, ListQuery(project_id, where=view.where, sort=view.sort, now=now))
    listed.page(None, 0, 1)
    rows = {row.name: row for row in session.scalars(select(RunView).where(RunView.project_id == project_id))}
    row = rows.get(name)
    if row is None and len(rows) >= _MOST_VIEWS:
        raise InvalidRequestError("name", f"the project has {len(rows)} saved views; delete one first")
    if row is None:
        row = RunView(id=new_id("vew"), project_id=project_id, name=name)
        session.add(row)
    row.view, row.created_at = view.model_dump(mode="json"), now
    set_principal(row, "made_by", by)
    session.flush()
    history.record_audit(session, "view.save", name, principal=by, project_id=project_id, now=now)
    return _view_view(row)


def delete_view(session: Session, project_id: str, name: str, *, by: api.PrincipalRef, now: int) -> None:
    """Forgets a saved view. Raises NotFoundError."""
    ours = (RunView.project_id == project_id, RunView.name == name)
    row = session.scalars(select(RunView).where(*ours)).one_or_none()
    if row is None:
        raise NotFoundError("view", name)
    session.delete(row)
    history.record_audit(session, "view.delete", name, principal=by, project_id=project_id, now=now)


def _view_view(row: RunView) -> api.RunView:
    return api.RunView.model_validate(
        {"name": row.name, "view": row.view, "made_by": principal_in(row, "made_by"), "created_at": row.created_at}
    )
