"""Repairs what was stamped by a clock that has been set back since, or by one that is ahead."""

from sqlalchemy import bindparam, update
from sqlalchemy.orm import Session

from drumline.contracts.states import TERMINAL_ATTEMPT, AttemptState, RunState
from drumline_server.attempts.retries import BACKOFF_S
from drumline_server.models import Attempt, Host, Incarnation, Run, table_of

_MICROS = 1_000_000
_HOST, _INCARNATION, _ATTEMPT, _RUN = (table_of(model) for model in (Host, Incarnation, Attempt, Run))
_HOSTS_PULL = (
    update(_HOST).where(_HOST.c.last_heartbeat_at > bindparam("now")).values(last_heartbeat_at=bindparam("now"))
)
_HOST_PULL = _HOSTS_PULL.where(_HOST.c.id == bindparam("host"))
_PULLS = (
    _HOSTS_PULL,
    update(_INCARNATION)
    .where(_INCARNATION.c.last_heartbeat_at > bindparam("now"))
    .values(last_heartbeat_at=bindparam("now")),
    update(_ATTEMPT)
    .where(_ATTEMPT.c.state == AttemptState.FINISHING, _ATTEMPT.c.finishing_at > bindparam("now"))
    .values(finishing_at=bindparam("now")),
    update(_ATTEMPT)
    .where(_ATTEMPT.c.state == AttemptState.DISPATCHED, _ATTEMPT.c.claim_deadline > bindparam("latest_claim"))
    .values(claim_deadline=bindparam("latest_claim")),
    *(
        update(_ATTEMPT)
        .where(_ATTEMPT.c.state.not_in(TERMINAL_ATTEMPT), began > bindparam("now"))
        .values({began: bindparam("now")})
        for began in (_ATTEMPT.c.claimed_at, _ATTEMPT.c.started_at)
    ),
    update(_RUN)
    .where(_RUN.c.state == RunState.RETRY_WAIT, _RUN.c.retry_at > bindparam("latest_retry"))
    .values(retry_at=bindparam("latest_retry")),
)


def pull_back(session: Session, *, claim_s: float, now: int) -> None:
    """No lease was renewed, no wait and no program begun after `now`; no wait ends later than one that begins now."""
    times = {
        "now": now,
        "latest_claim": now + int(claim_s * _MICROS),
        "latest_retry": now + BACKOFF_S[-1] * _MICROS,
    }
    for statement in _PULLS:
        session.execute(statement, times)


def pull_back_host(host_id: str, session: Session, *, now: int) -> None:
    """One host's lease was renewed at the latest now: until then its heartbeats would be refused."""
    session.execute(_HOST_PULL, {"host": host_id, "now": now})
