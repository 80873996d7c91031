"""What the scheduler would do with a run: asked of the scheduler itself, with the run queued in a savepoint.

The savepoint is rolled back: the run never was, nothing is held, nobody hears of it.
"""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.jobs import service as jobs
from drumline_server.models import Run
from drumline_server.plans import queries
from drumline_server.runs.checking import Checked
from drumline_server.runs.queueing import Order, queue_runs
from drumline_server.runs.submission import Submission
from drumline_server.runs.why_start import explain
from drumline_server.scheduler.placement import Placement, Snapshot, place
from drumline_server.scheduler.rounds import Terms
from drumline_server.scheduler.snapshot import as_if_idle
from drumline_server.wakeups import announced, take_back


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Where a run would sit; if it would wait, why, and where it would sit on an idle fleet."""

    starts_now: bool
    why: api.Why | None
    devices: tuple[api.PlacedDevice, ...]


def foresee(session: Session, submission: Submission, *, terms: Terms, now: int) -> Foreseen:
    """What would become of the submission if it were sent now; its parameters are checked already."""
    before = announced(session)
    with session.begin_nested() as savepoint:
        body, by = submission.body, submission.submitted_by
        version, _ = jobs.ensure_version(session, submission.project_id, body.job, by=by, now=now)
        order = Order(version, body, Checked(body.parameters, plan_id=None, resume_from=None))
        (run,) = queue_runs(session, submission.project_id, by, [order], now=now)
        foreseen = _look(session, run, terms=terms, now=now)
        savepoint.rollback()
    take_back(session, before)
    return foreseen


def _look(session: Session, run: Run, *, terms: Terms, now: int) -> Foreseen:
    snapshot = terms.look(session, run.project_id, now=now)
    placement = _placement(snapshot, run.id)
    if placement is not None:
        return Foreseen(True, None, queries.seated(session, placement))
    why = explain(session, run, terms, now=now)
    idle = as_if_idle(session, snapshot, run.project_id, run.id)
    later = _placement(idle, run.id)
    return Foreseen(False, why, queries.seated(session, later) if later is not None else ())


def _placement(snapshot: Snapshot, run_id: str) -> Placement | None:
    return next((placement for placement in place(snapshot).placements if placement.run_id == run_id), None)
