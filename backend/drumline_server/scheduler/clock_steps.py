"""Repairs what was stamped by a clock that has been set back since."""

from sqlalchemy import update
from sqlalchemy.orm import Session

from drumline.contracts.states import AttemptState, RunState
from drumline_server.attempts.retries import BACKOFF_S
from drumline_server.models import Attempt, Host, Incarnation, Run

_MICROS = 1_000_000


def pull_back(session: Session, *, claim_s: float, now: int) -> None:
    """No lease was renewed and no wait begun after `now`, and none ends later than one that begins now would."""
    latest_claim = now + int(claim_s * _MICROS)
    latest_retry = now + BACKOFF_S[-1] * _MICROS
    for statement in (
        update(Host).where(Host.last_heartbeat_at > now).values(last_heartbeat_at=now),
        update(Incarnation).where(Incarnation.last_heartbeat_at > now).values(last_heartbeat_at=now),
        update(Attempt)
        .where(Attempt.state == AttemptState.FINISHING, Attempt.finishing_at > now)
        .values(finishing_at=now),
        update(Attempt)
        .where(Attempt.state == AttemptState.DISPATCHED, Attempt.claim_deadline > latest_claim)
        .values(claim_deadline=latest_claim),
        update(Run).where(Run.state == RunState.RETRY_WAIT, Run.retry_at > latest_retry).values(retry_at=latest_retry),
    ):
        session.execute(statement, execution_options={"synchronize_session": False})
