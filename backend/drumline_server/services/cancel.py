"""Asks runs to stop: those that wait end at once, programs get their grace."""

from dataclasses import dataclass

from sqlalchemy import update
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.problems import ProblemCode
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import TERMINAL_RUN, RunState
from drumline_server.base.errors import DrumlineError, NotFoundError
from drumline_server.lifecycle import release
from drumline_server.lifecycle.transitions import transition_run
from drumline_server.services.runs import whole_run
from drumline_server.storage import history, runs
from drumline_server.storage.history import lock_run, record_event
from drumline_server.storage.models import Run
from drumline_server.storage.notifications import QUEUE, announce

CANCELLED_AT_ONCE = 40
"""Some 35 ms in which nobody else writes."""


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Who wants which run to stop."""

    project_id: str
    run_id: str
    requested_by: str
    body: api.CancelRequest


@dataclass(frozen=True, slots=True)
class BatchCancellation:
    """Who wants which batch to stop; without `grace_s` each run has its own grace."""

    batch_id: str
    requested_by: str
    grace_s: float | None


def cancel(session: Session, request: Cancellation, *, now: int) -> api.Run:
    """Stops a run, or begins to. Asking again while it stops changes nothing but the grace period.

    Raises NotFoundError, or DrumlineError already_terminal for a run that ended otherwise.
    """
    run = lock_run(session, request.run_id)
    if run is None or run.project_id != request.project_id:
        raise NotFoundError("run", request.run_id)
    if run.state in TERMINAL_RUN:
        return _already_ended(session, run, now)
    _ask_to_stop(session, run, request.requested_by, request.body.grace_s, now)
    session.refresh(run)
    return whole_run(session, run, now=now)


def cancel_some(session: Session, request: BatchCancellation, *, now: int) -> int:
    """Asks some of the batch's runs that were not asked yet to stop, waiting ones first; says how many.

    To be called until it says 0: a part at a time, so that no transaction keeps others waiting for long.
    """
    asked = 0
    for run_id in runs.uncancelled_of_batch(session, request.batch_id, CANCELLED_AT_ONCE):
        run = lock_run(session, run_id)
        if run is not None and run.state not in TERMINAL_RUN:
            _ask_to_stop(session, run, request.requested_by, request.grace_s, now)
            asked += 1
    return asked


def _ask_to_stop(session: Session, run: Run, requested_by: str, grace_s: float | None, now: int) -> None:
    _note_request(session, run, requested_by, grace_s, now)
    if run.state in (RunState.QUEUED, RunState.RETRY_WAIT):
        transition_run(session, run, RunState.CANCELLED, now=now, reason=EndReason.CANCELLED)
        announce(session, QUEUE)
    elif run.state in (RunState.PLACED, RunState.RUNNING):
        release.stop_run(session, run, EndReason.CANCELLED, now=now)


def _already_ended(session: Session, run: Run, now: int) -> api.Run:
    if run.state == RunState.CANCELLED:
        return whole_run(session, run, now=now)
    raise DrumlineError(
        ProblemCode.ALREADY_TERMINAL,
        f"Run {run.id} has already ended: {run.state}.",
        context={"run": run.id, "state": run.state},
    )


def _note_request(session: Session, run: Run, requested_by: str, wanted_grace_s: float | None, now: int) -> None:
    if run.cancel_requested_at is not None and wanted_grace_s is None:
        return
    grace_s = wanted_grace_s if wanted_grace_s is not None else run.limits["grace_s"]
    session.execute(
        update(Run)
        .where(Run.id == run.id)
        .values(cancel_requested_at=run.cancel_requested_at or now, cancel_grace_s=grace_s)
    )
    record_event(session, run.id, "cancel", {"grace_s": grace_s}, now=now, attempt_id=run.attempt_id)
    announce(session, f"runs:{run.id}")
    history.record_audit(session, "run.cancel", run.id, principal=requested_by, project_id=run.project_id, now=now)
