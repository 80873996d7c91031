"""How runs are changed by people, one, or many a part at a time: asked to stop, labels, a note, a star, archived,
deleted.
"""

import time
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.api import PrincipalRef
from drumline.contracts.reasons import EndReason
from drumline.contracts.spec import MAX_LABELS
from drumline.contracts.states import TERMINAL_RUN, RunState
from drumline_server.base.errors import InvalidRequestError
from drumline_server.lifecycle import aftermath
from drumline_server.lifecycle.aftermath import stopped_by
from drumline_server.lifecycle.deletion import Deletion, delete_runs
from drumline_server.lifecycle.transitions import transition_run
from drumline_server.storage import fields, history
from drumline_server.storage.history import lock_run, record_event
from drumline_server.storage.models import Batch, BulkChange, Run, RunLabel, principal_in, set_principal
from drumline_server.storage.notifications import QUEUE, announce, run_list
from drumline_server.storage.runs import list_uncancelled

CANCELLED_AT_ONCE = 20
"""So many runs at most in a transaction..."""
_HOLD_S = 0.02
"""...and no further one once it has held the interpreter so long: a run takes 1 to 5 ms, by database and machine."""
_PART = 50
"""Runs of a change of many at most in a transaction, and no further one after `_HOLD_S`."""
_MOST_REFUSED = 20
"""Runs that a bulk deletion names as kept."""
Labels = Mapping[str, str | None]


def batches_to_cancel(session: Session) -> Sequence[str]:
    """Batches that are marked and have runs that may not have been asked to stop yet, the oldest mark first."""
    marked = select(Batch.id).where(Batch.cancel_requested_at.is_not(None), Batch.cancelled_at.is_(None))
    return session.scalars(marked.order_by(Batch.cancel_requested_at, Batch.id)).all()


def cancel_part(session: Session, batch_id: str, *, now: int) -> bool:
    """Asks some runs of a marked batch that were not asked yet to stop, waiting ones first; whether more are left."""
    batch = session.get_one(Batch, batch_id)
    if batch.cancel_requested_at is None or batch.cancelled_at is not None:
        return False
    began = time.thread_time()
    part = list_uncancelled(session, batch_id, CANCELLED_AT_ONCE)
    for place, run_id in enumerate(part):
        if place and time.thread_time() - began > _HOLD_S:
            return True
        run = lock_run(session, run_id)
        if run is not None and run.state not in TERMINAL_RUN:
            ask_to_stop(session, run, principal_in(batch, "cancel_requested_by"), batch.cancel_grace_s, now)
    if len(part) == CANCELLED_AT_ONCE:
        return True
    batch.cancelled_at = now
    return False


def ask_to_stop(session: Session, run: Run, requested_by: PrincipalRef, grace_s: float | None, now: int) -> None:
    """Ends a run that only waits, and stops the program of any other; the run is locked, and lives."""
    _note_request(session, run, requested_by, grace_s, now)
    if run.state in (RunState.QUEUED, RunState.RETRY_WAIT):
        columns = {"reason_message": stopped_by(run)}
        transition_run(session, run, RunState.CANCELLED, now=now, reason=EndReason.CANCELLED, columns=columns)
        announce(session, QUEUE)
    elif run.state in (RunState.PLACED, RunState.RUNNING):
        aftermath.stop_run(session, run, EndReason.CANCELLED, now=now)


def _note_request(
    session: Session, run: Run, requested_by: PrincipalRef, wanted_grace_s: float | None, now: int
) -> None:
    if run.cancel_requested_at is not None and wanted_grace_s is None:
        return
    grace_s = wanted_grace_s if wanted_grace_s is not None else run.limits["grace_s"]
    if run.cancel_requested_at is None:
        run.cancel_requested_at = now
        set_principal(run, "cancel_requested_by", requested_by)
    run.cancel_grace_s = grace_s
    body = {"grace_s": grace_s, "by": requested_by.name}
    record_event(session, run.id, "cancel", body, now=now, attempt_id=run.attempt_id)
    announce(session, run_list(run.id))
    history.record_audit(session, "run.cancel", run.id, principal=requested_by, project_id=run.project_id, now=now)


def mark(session: Session, run: Run, change: api.RunPatch, *, now: int) -> bool:
    """Changes a run that is locked; whether anything was not so already."""
    before = (dict(run.labels), run.note, run.starred_at, run.archived_at)
    if change.labels:
        _set_labels(session, run, change.labels)
    if change.note is not None:
        run.note = change.note if change.note.strip() else ""  # a note that nobody can see is none
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
