"""Rows of `attempt`, `member` and `hold`, read afresh: their writers hold the lock of the run."""

from collections.abc import Sequence

from sqlalchemy import Select, bindparam, select
from sqlalchemy.orm import Session

from drumline.contracts.states import TERMINAL_ATTEMPT
from drumline_server.models import Attempt, Device, Hold, Member

_ATTEMPTS = select(Attempt).execution_options(populate_existing=True)
_MEMBERS = select(Member).execution_options(populate_existing=True)
_LIVE_ATTEMPT = _ATTEMPTS.where(Attempt.run_id == bindparam("run"), Attempt.state.not_in(TERMINAL_ATTEMPT))
_ATTEMPT = _ATTEMPTS.where(Attempt.id == bindparam("attempt"))
_MEMBER = _MEMBERS.where(Member.id == bindparam("member"))
_GANG = _MEMBERS.where(Member.attempt_id == bindparam("attempt")).order_by(Member.rank)
_HELD: Select[Hold, Device] = (
    select(Hold, Device)
    .join(Device, Device.id == Hold.device_id)
    .where(Hold.member_id == bindparam("member"))
    .order_by(Hold.replica, Hold.logical)
    .execution_options(populate_existing=True)
)


def live_attempt(session: Session, run_id: str) -> Attempt | None:
    """The attempt of a run that has not ended; there is at most one."""
    return session.scalar(_LIVE_ATTEMPT, {"run": run_id})


def attempt_by_id(session: Session, attempt_id: str) -> Attempt:
    """That attempt."""
    return session.scalars(_ATTEMPT, {"attempt": attempt_id}).one()


def member_by_id(session: Session, member_id: str) -> Member | None:
    """That member, if there is one."""
    return session.scalar(_MEMBER, {"member": member_id})


def members_of(session: Session, attempt_id: str) -> Sequence[Member]:
    """The members of an attempt by rank."""
    return session.scalars(_GANG, {"attempt": attempt_id}).all()


def held_devices(session: Session, member_id: str) -> Sequence[tuple[Hold, Device]]:
    """Every device that the member was given, with its hold, by replica."""
    return [(hold, device) for hold, device in session.execute(_HELD, {"member": member_id})]
