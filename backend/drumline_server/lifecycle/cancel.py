"""How runs are asked to stop, one, or a whole batch a part at a time."""

import time
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts.api import PrincipalRef
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import TERMINAL_RUN, RunState
from drumline_server.lifecycle import release
from drumline_server.lifecycle.release import stopped_by
from drumline_server.lifecycle.transitions import transition_run
from drumline_server.storage import history
from drumline_server.storage.history import lock_run, record_event
from drumline_server.storage.models import Batch, Run, principal_in, set_principal
from drumline_server.storage.notifications import QUEUE, announce, run_list
from drumline_server.storage.runs import list_uncancelled

CANCELLED_AT_ONCE = 20
"""So many runs at most in a transaction..."""
_HOLD_S = 0.02
"""...and no further one once it has held the interpreter so long: a run takes 1 to 5 ms, by database and machine."""


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
        release.stop_run(session, run, EndReason.CANCELLED, now=now)


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
