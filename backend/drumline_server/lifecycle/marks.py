"""How runs are marked, one, or many a part at a time: labels, a note, a star, archived, asked to stop, and deleted."""

import time
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.spec import MAX_LABELS
from drumline.contracts.states import TERMINAL_RUN
from drumline_server.base.errors import InvalidRequestError
from drumline_server.lifecycle.cancel import ask_to_stop
from drumline_server.lifecycle.deletion import Deletion, delete_runs
from drumline_server.storage import fields, history
from drumline_server.storage.history import lock_run
from drumline_server.storage.models import BulkChange, Run, RunLabel, principal_in
from drumline_server.storage.notifications import announce, run_list

_MOST_REFUSED = 20
"""Runs that a bulk deletion names as kept."""
Labels = Mapping[str, str | None]
_PART = 50
"""Runs at most in a transaction..."""
_HOLD_S = 0.02
"""...and no further one once it has held the interpreter so long."""


def mark(session: Session, run: Run, change: api.RunPatch, *, now: int) -> bool:
    """Changes a run that is locked; whether anything was not so already."""
    before = (dict(run.labels), run.note, run.starred_at, run.archived_at)
    if change.labels:
        _set_labels(session, run, change.labels)
    if change.note is not None:
        run.note = change.note
    if change.starred is not None and change.starred != (run.starred_at is not None):
        run.starred_at = now if change.starred else None
    if change.archived is not None and change.archived != (run.archived_at is not None):
        run.archived_at = now if change.archived else None
    if before == (run.labels, run.note, run.starred_at, run.archived_at):
        return False
    session.flush()
    announce(session, run_list(run.id))
    return True


def _set_labels(session: Session, run: Run, change: Labels) -> None:
    labels = {**run.labels, **{key: value for key, value in change.items() if value is not None}}
    gone = [key for key, value in change.items() if value is None and key in run.labels]
    for key in gone:
        del labels[key]
    if len(labels) > MAX_LABELS:
        raise InvalidRequestError("labels", f"run {run.id} would have {len(labels)} labels; at most {MAX_LABELS}")
    if labels == run.labels:
        return
    run.labels = labels
    session.execute(delete(RunLabel).where(RunLabel.run_id == run.id))
    if labels:
        owner = {"run_id": run.id, "project_id": run.project_id}
        session.execute(insert(RunLabel), [{**owner, "key": key, "value": value} for key, value in labels.items()])
    fields.drop_fields(session, run.project_id, run.number, [f"labels.{key}" for key in gone])
    fields.put_fields(session, run.project_id, {run.number: fields.label_fields(labels)})


def open_bulks(session: Session) -> Sequence[str]:
    """Changes of many runs that are not over, the oldest first."""
    query = select(BulkChange.id).where(BulkChange.ended_at.is_(None))
    return session.scalars(query.order_by(BulkChange.created_at, BulkChange.id).limit(100)).all()


def bulk_part(session: Session, bulk_id: str, *, now: int) -> bool:
    """Changes some runs of a bulk change, in order; whether more are left."""
    query = select(BulkChange).where(BulkChange.id == bulk_id).with_for_update()
    change = session.scalars(query.execution_options(populate_existing=True)).one()
    if change.ended_at is not None:
        return False
    action = api.BulkAction.model_validate(change.change)
    began = time.thread_time()
    part = array("q", change.runs)[change.done : change.done + _PART]
    if action.kind == "delete":
        _delete_part(session, part, action.why, change, now)
        part = part[:0]
    for number in part:
        run_id = session.scalar(select(Run.id).where(Run.number == number))
        change.changed += run_id is not None and _apply(session, run_id, action, change, now)
        change.done += 1
        if time.thread_time() - began > _HOLD_S:
            break
    if change.done < change.total:
        return True
    change.state, change.ended_at = api.BulkState.DONE, now
    return False


def _delete_part(session: Session, part: Sequence[int], why: str, change: BulkChange, now: int) -> None:
    """All at once, in the few statements that one run takes."""
    there = set(session.scalars(select(Run.id).where(Run.number.in_(part), Run.deleted_at.is_(None))))
    refused = delete_runs(session, part, Deletion(principal_in(change, "asked_by"), why, now))
    change.done += len(part)
    change.changed += len(there - refused.keys())
    told = [{"run": run_id, "detail": error.detail, "hint": error.hint} for run_id, error in sorted(refused.items())]
    change.refused = [*(change.refused or ()), *told][:_MOST_REFUSED]


def _apply(session: Session, run_id: str, action: api.BulkAction, change: BulkChange, now: int) -> bool:
    run = lock_run(session, run_id)
    if run is None:
        return False
    if action.kind == "cancel":
        if run.state in TERMINAL_RUN or run.cancel_requested_at is not None:
            return False
        ask_to_stop(session, run, principal_in(change, "asked_by"), action.grace_s, now)
        return True
    try:
        is_changed = mark(session, run, _as_patch(action), now=now)
    except InvalidRequestError:  # its labels are full; the others have what was asked for
        return False
    if is_changed:
        audit_mark(session, run, {"bulk": change.id}, principal_in(change, "asked_by"), now)
    return is_changed


def _as_patch(action: api.BulkAction) -> api.RunPatch:
    if action.kind == "label":
        return api.RunPatch(labels=action.labels)
    if action.kind == "note":
        return api.RunPatch(note=action.note)
    if action.kind in ("star", "unstar"):
        return api.RunPatch(starred=action.kind == "star")
    return api.RunPatch(archived=action.kind == "archive")


def audit_mark(
    session: Session,
    run: Run,
    body: Mapping[str, Any],  # Any: JSON of the change
    by: api.PrincipalRef,
    now: int,
) -> None:
    """Writes down who marked a run."""
    history.record_audit(session, "run.mark", run.id, principal=by, project_id=run.project_id, now=now, body=body)
