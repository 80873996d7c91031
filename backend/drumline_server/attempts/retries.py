"""Whether a failed run is tried again, and when."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from drumline.contracts.reasons import HOST_LOSSES, REASONS, Category, EndReason
from drumline.contracts.states import AttemptState, RunState
from drumline_server.attempts.poison import poison_message
from drumline_server.models import Attempt, Run
from drumline_server.moves import move_run

BACKOFF_S = (5, 15, 45)
"""Before the first, second, third and every later retry."""
MOST_OF_CONTROL_PLANE = 20
"""Failures of one run that are the control plane's: it tries no longer than somebody may take to mend that."""
_MICROS = 1_000_000
_OF_CONTROL_PLANE = [reason for reason, facts in REASONS.items() if facts.category is Category.CONTROL_PLANE]
_UNCOUNTED = frozenset({Category.CAPACITY, Category.CONTROL_PLANE})
"""Preemption is nobody's failure, and what the control plane failed at is not the run's."""


def retry_or_fail(session: Session, run: Run, reason: EndReason, message: str, *, now: int) -> None:
    """Moves a run whose attempt failed to RETRY_WAIT if its budget allows, else to FAILED. The run is locked.

    An attempt that failed for a cause of the control plane costs nothing of the budget.
    """
    poison = poison_message(session, run) if reason in HOST_LOSSES else None
    if poison is not None:
        message_of = {"reason_message": poison}
        move_run(session, run, RunState.FAILED, now=now, reason=EndReason.POISON, columns=message_of)
        return
    facts = REASONS[reason]
    by_user = facts.category is Category.USER
    counter = "user_failures" if by_user else "infrastructure_failures"
    failures = int(getattr(run, counter))
    budget = run.retries["user" if by_user else "infrastructure"]
    columns = {"reason_message": message, counter: failures + (facts.category not in _UNCOUNTED)}
    is_spent = failures >= budget and facts.category not in _UNCOUNTED
    if facts.category is Category.CONTROL_PLANE:
        failures = max(0, _failures_of_control_plane(session, run) - 1)
        is_spent = failures >= MOST_OF_CONTROL_PLANE
    if not facts.retryable or is_spent:
        move_run(session, run, RunState.FAILED, now=now, reason=reason, columns=columns)
        return
    backoff_s = BACKOFF_S[min(failures, len(BACKOFF_S) - 1)]
    columns["retry_at"] = now + backoff_s * _MICROS
    move_run(session, run, RunState.RETRY_WAIT, now=now, reason=reason, columns=columns)


def requeue(session: Session, run: Run, *, now: int) -> bool:
    """Moves a run back into the queue, from RETRY_WAIT to wait anew, or to wait on because its attempt was not claimed.

    What waits on keeps the end of its waiting.
    """
    queue_s, deadline = run.limits["queue_s"], run.queue_deadline
    if run.state != RunState.PLACED:
        deadline = None if queue_s is None else now + int(queue_s * _MICROS)
    columns = {"reason_code": None, "reason_message": "", "retry_at": None, "queue_deadline": deadline}
    return move_run(session, run, RunState.QUEUED, now=now, columns=columns)


def _failures_of_control_plane(session: Session, run: Run) -> int:
    """How many attempts of the run ended so, the present one included."""
    ended = (Attempt.run_id == run.id, Attempt.state != AttemptState.EXPIRED)
    query = select(func.count()).where(*ended, Attempt.reason_code.in_(_OF_CONTROL_PLANE))
    return session.scalar(query) or 0
