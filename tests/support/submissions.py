"""A submission as the server takes it, without its request."""

from sqlalchemy.orm import Session

from drumline_server.base.errors import DrumlineError
from drumline_server.services.checking import require_storable
from drumline_server.services.submit import Submission, SubmissionResult, submit_all

MOST_WAITING = 50_000


def submit_one(session: Session, submission: Submission, *, now: int) -> SubmissionResult:
    """One submission as the server takes it among others. Raises its refusal."""
    require_storable(submission.body)
    (outcome,) = submit_all(session, [submission], most_waiting=MOST_WAITING, now=now)
    if isinstance(outcome, DrumlineError):
        raise outcome
    return outcome
