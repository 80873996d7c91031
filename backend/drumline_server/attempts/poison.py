"""Recognizes runs that take down what they run on, before they do it once more (P14)."""

from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts.reasons import HOST_LOSSES
from drumline_server.models import Attempt, Host, Member, Run

HOSTS = 2
"""So many different hosts lost by one run are not chance."""
ATTEMPTS_ON_ONE = 3
"""So many losses are not chance either, where one host has to stand for all."""


class _Loss(NamedTuple):
    attempt: int
    host_id: str
    host_name: str
    reason: str | None


def poison_message(session: Session, run: Run) -> str | None:
    """What the run has lost so far, if that makes it poison; else None. Of a gang's attempt one host counts."""
    losses = _losses(session, run.id)
    hosts = {loss.host_id for loss in losses}
    if len(hosts) < HOSTS and not (len(losses) >= ATTEMPTS_ON_ONE and _is_only_host(session, run)):
        return None
    told = ", ".join(f"{loss.host_name} (attempt {loss.attempt}, {loss.reason})" for loss in losses)
    return f"Lost {told}."


def _losses(session: Session, run_id: str) -> list[_Loss]:
    """The first loss of each attempt, oldest first."""
    query = (
        select(Attempt.number, Member.host_id, Host.name, Member.reason_code)
        .join(Attempt, Attempt.id == Member.attempt_id)
        .join(Host, Host.id == Member.host_id)
        .where(Member.run_id == run_id, Member.reason_code.in_(HOST_LOSSES))
        .order_by(Attempt.number.desc(), Member.ended_at.desc(), Member.rank.desc())
    )
    first = {row.number: _Loss(*row) for row in session.execute(query)}
    return [first[number] for number in sorted(first)]


def _is_only_host(session: Session, run: Run) -> bool:
    known = select(Host.id).where(Host.project_id == run.project_id, Host.registered_at.is_not(None)).limit(2)
    return len(session.scalars(known).all()) == 1
