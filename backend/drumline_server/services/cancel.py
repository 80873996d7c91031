"""Asks runs to stop: those that wait end at once, programs get their grace.

A batch is only marked by the request. A loop of the server asks its runs, a part in each transaction, so that 10 000
of them keep nobody waiting; what a restart interrupts continues from the mark.
"""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.problems import ProblemCode
from drumline.contracts.states import TERMINAL_RUN, RunState
from drumline_server.base.errors import DrumlineError
from drumline_server.lifecycle.cancel import ask_to_stop
from drumline_server.services import batches
from drumline_server.services.runs import whole_run
from drumline_server.storage import history
from drumline_server.storage.history import lock_run
from drumline_server.storage.models import Batch, Run, set_principal
from drumline_server.storage.notifications import CANCELS, announce
from drumline_server.storage.runs import no_run


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
