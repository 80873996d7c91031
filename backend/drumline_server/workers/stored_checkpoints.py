"""Tells workers which checkpoints on their disks nobody needs any more."""

from sqlalchemy.orm import Session

from drumline.contracts.worker_api import ExpiredRuns, StoredRuns
from drumline_server.attempts.guard import require_incarnation
from drumline_server.checkpoints import service as checkpoints


def expire(session: Session, host_id: str, body: StoredRuns, *, ended_before: int) -> ExpiredRuns:
    """Those of the runs that ended before that time and that no live run goes on from.

    Raises DrumlineError fenced for an old incarnation.
    """
    host = require_incarnation(session, host_id, body.incarnation)
    return ExpiredRuns(runs=checkpoints.expire(session, host, body.runs, ended_before=ended_before))
