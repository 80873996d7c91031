"""What the scheduler would do with a run: asked of the scheduler itself, with the run added to what it looks at.

Nothing is written: the run never is, nothing is held, and no writer waits while the queue is read.
"""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.ids import new_id
from drumline_server.checkpoints import service as checkpoints
from drumline_server.models import JobVersion, Run
from drumline_server.plans import queries
from drumline_server.runs.checking import Checked
from drumline_server.runs.queueing import Order, as_queued
from drumline_server.runs.submission import Submission
from drumline_server.runs.why_start import explain_queued
from drumline_server.scheduler.placement import Placement, Snapshot, place
from drumline_server.scheduler.rounds import Terms
from drumline_server.scheduler.snapshot import alone_and_idle, is_behind_the_head, queued_run, with_run


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Where a run would sit; if it would wait, why, and where it would sit on an idle fleet."""

    starts_now: bool
    why: api.Why | None
    devices: tuple[api.PlacedDevice, ...]


def foresee(session: Session, submission: Submission, checked: Checked, *, terms: Terms, now: int) -> Foreseen:
    """What would become of the submission, which is checked already, if it were sent now. Only reads."""
    run = _imagined(submission, checked, now)
    source = run.resume_from
    home = checkpoints.home_of_source(session, run.project_id, source) if source else None
    queued = queued_run(run, home)
    snapshot = terms.look(session, run.project_id, now=now)
    if not is_behind_the_head(session, run):
        snapshot = with_run(snapshot, queued, terms.ageing)
    placement = _placement(snapshot, run.id)
    if placement is not None:
        return Foreseen(True, None, queries.seated(session, placement))
    why = explain_queued(session, run, snapshot, terms, now=now)
    later = _placement(alone_and_idle(session, snapshot, run.project_id, queued), run.id)
    return Foreseen(False, why, queries.seated(session, later) if later is not None else ())


def _imagined(submission: Submission, checked: Checked, now: int) -> Run:
    """The run as it would be queued; it belongs to no session."""
    body = submission.body
    strategy = body.job.strategy.model_dump(mode="json")
    version = JobVersion(id=new_id("ver"), job_id=new_id("job"), number=1, strategy=strategy)
    return as_queued(Order(submission.project_id, submission.submitted_by, version, body, checked), now)


def _placement(snapshot: Snapshot, run_id: str) -> Placement | None:
    return next((placement for placement in place(snapshot).placements if placement.run_id == run_id), None)
