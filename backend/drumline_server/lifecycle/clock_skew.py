"""Repairs what was stamped by a clock that has been set back since, or by one that is ahead.

The clock is read when the hosts are locked: a lease that was renewed meanwhile must not be made shorter.
"""

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from drumline.contracts.states import TERMINAL_ATTEMPT, AttemptState, RunState
from drumline_server.base.clock import Clock
from drumline_server.lifecycle.guard import is_stamped_ahead, require_host
from drumline_server.lifecycle.retries import BACKOFF_S
from drumline_server.storage.models import Attempt, Host, Incarnation, Run, table_of

_MICROS = 1_000_000
_HOST, _INCARNATION, _ATTEMPT, _RUN = (table_of(model) for model in (Host, Incarnation, Attempt, Run))
_AHEAD = select(_HOST.c.id).where(_HOST.c.last_heartbeat_at > bindparam("now")).order_by(_HOST.c.id).with_for_update()
_PULLS = (
    update(_HOST).where(_HOST.c.last_heartbeat_at > bindparam("now")).values(last_heartbeat_at=bindparam("now")),
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


def pull_back(session: Session, *, claim_s: float, clock: Clock) -> None:
    """No lease was renewed, no wait and no program begun after now; no wait ends later than one that begins now."""
    session.execute(_AHEAD, {"now": clock.now()}).all()
    now = clock.now()
    times = {
        "now": now,
        "latest_claim": now + int(claim_s * _MICROS),
        "latest_retry": now + BACKOFF_S[-1] * _MICROS,
    }
    for statement in _PULLS:
        session.execute(statement, times)


def pull_back_host(host_id: str, session: Session, *, clock: Clock) -> None:
    """One host's lease was renewed at the latest now, if it is ahead by more than clocks of servers may be apart.

    Until then its heartbeats would be refused.
    """
    host = require_host(session, host_id, lock=True)
    now = clock.now()
    if is_stamped_ahead(host.last_heartbeat_at, now):
        host.last_heartbeat_at = now
