"""Rows of `attempt`, `member` and `hold`, read afresh: their writers hold the lock of the run."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts.states import TERMINAL_ATTEMPT
from drumline_server.models import Attempt, Device, Hold, Member

_FRESH = {"populate_existing": True}


def live_attempt(session: Session, run_id: str) -> Attempt | None:
    """The attempt of a run that has not ended; there is at most one."""
    query = select(Attempt).where(Attempt.run_id == run_id, Attempt.state.not_in(TERMINAL_ATTEMPT))
    return session.scalar(query, execution_options=_FRESH)


def attempt_by_id(session: Session, attempt_id: str) -> Attempt:
    """That attempt."""
    query = select(Attempt).where(Attempt.id == attempt_id)
    return session.scalars(query, execution_options=_FRESH).one()


def member_by_id(session: Session, member_id: str) -> Member | None:
    """That member, if there is one."""
    return session.scalar(select(Member).where(Member.id == member_id), execution_options=_FRESH)


def members_of(session: Session, attempt_id: str) -> Sequence[Member]:
    """The members of an attempt by rank."""
    query = select(Member).where(Member.attempt_id == attempt_id).order_by(Member.rank)
    return session.scalars(query, execution_options=_FRESH).all()


def held_devices(session: Session, member_id: str) -> Sequence[tuple[Hold, Device]]:
    """Every device that the member was given, with its hold, by replica."""
    query = (
        select(Hold, Device)
        .join(Device, Device.id == Hold.device_id)
        .where(Hold.member_id == member_id)
        .order_by(Hold.replica, Hold.logical)
    )
    return [(hold, device) for hold, device in session.execute(query, execution_options=_FRESH)]
