"""Takes the end of a member: its outcome, and the proof that its devices are free."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts.events import MemberAck, MemberEnd
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import TERMINAL_MEMBER, MemberState
from drumline_server.attempts import loss
from drumline_server.attempts.guard import (
    Held,
    acknowledge,
    lock_member,
    require_claimed,
    require_fence,
    require_incarnation,
    require_own,
)
from drumline_server.attempts.outcome import settle_attempt
from drumline_server.attempts.release import free_devices, quarantine_devices
from drumline_server.errors import DrumlineError, FencedError
from drumline_server.models import Member
from drumline_server.moves import move_member


@dataclass(frozen=True, slots=True)
class EndTaken:
    """What became of a report: `fenced` is set where it came too late to count, though its proof of death did."""

    ack: MemberAck
    fenced: DrumlineError | None = None


def end_member(session: Session, host_id: str, member_id: str, end: MemberEnd, *, now: int) -> EndTaken:
    """Ends a member. The same report again is answered alike; the attempt ends once its telemetry is stored.

    Raises NotFoundError; DrumlineError fenced for an old incarnation, but for the death of what it left behind.
    """
    try:
        require_incarnation(session, host_id, end.incarnation)
    except DrumlineError as refusal:
        held = _left_behind(session, host_id, member_id, end)
        if held is None:
            raise
        _lose(session, held, now=now)
        return EndTaken(acknowledge(held), refusal)
    held = lock_member(session, host_id, member_id)
    require_claimed(held)
    require_own(held, end.incarnation)
    if end.devices_released:
        free_devices(session, held.member, now=now)
    fenced = _fenced(held, end.fence)
    if fenced is None and held.member.state not in TERMINAL_MEMBER:
        _end(session, held, end, now=now)
    return EndTaken(acknowledge(held), fenced)


def _left_behind(session: Session, host_id: str, member_id: str, end: MemberEnd) -> Held | None:
    """A member whose host moved away, if this is the proof of its death by the worker that had to make way."""
    incarnation = session.scalar(select(Member.incarnation_id).where(Member.id == member_id, Member.host_id == host_id))
    if incarnation != end.incarnation or not end.devices_released:
        return None
    held = lock_member(session, host_id, member_id)
    is_left = held.member.incarnation_id == end.incarnation and held.member.state not in TERMINAL_MEMBER
    return held if is_left else None


def _lose(session: Session, held: Held, *, now: int) -> None:
    """How it ended does not count, as the rest of its telemetry will never come; nor is it anybody's failure."""
    loss.lose_member(session, held.run, held.attempt, held.member, EndReason.PREEMPTED, proven_dead=True, now=now)


def _fenced(held: Held, fence: int) -> FencedError | None:
    if held.member.state in (MemberState.LOST, MemberState.FENCED):
        return FencedError(held.member.id, fence, held.run.fence)
    try:
        require_fence(held, fence)
    except FencedError as error:
        return error
    return None


def _end(session: Session, held: Held, end: MemberEnd, *, now: int) -> None:
    columns: dict[str, Any] = {
        "reason_message": end.message,
        "exit_code": end.exit_code,
        "signal": end.signal,
        "last_seq": end.last_seq,
        "output_bytes": end.output_bytes,
        "telemetry_at": now,
    }
    if end.tick is not None:
        columns["tick"] = end.tick.model_dump(mode="json")
    move_member(session, held.member, MemberState.EXITED, now=now, reason=end.reason, columns=columns)
    if not end.devices_released:
        quarantine_devices(session, held.member, "death_not_proven", now=now)
    settle_attempt(session, held.run, held.attempt, now=now)
