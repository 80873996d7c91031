"""Takes the end of a member: its outcome, and the proof that its devices are free."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from drumline.contracts.events import MemberAck, MemberEnd
from drumline.contracts.states import TERMINAL_MEMBER, MemberState
from drumline_server.attempts.guard import (
    Held,
    acknowledge,
    lock_member,
    require_claimed,
    require_fence,
    require_incarnation,
)
from drumline_server.attempts.outcome import settle_attempt
from drumline_server.attempts.release import free_devices, quarantine_devices
from drumline_server.errors import FencedError
from drumline_server.moves import move_member


@dataclass(frozen=True, slots=True)
class EndTaken:
    """What became of a report: `fenced` is set where it came too late to count, though its proof of death did."""

    ack: MemberAck
    fenced: FencedError | None = None


def end_member(session: Session, host_id: str, member_id: str, end: MemberEnd, *, now: int) -> EndTaken:
    """Ends a member. The same report again is answered alike; the attempt ends once its telemetry is stored.

    Raises NotFoundError; DrumlineError fenced for an old incarnation.
    """
    require_incarnation(session, host_id, end.incarnation)
    held = lock_member(session, host_id, member_id)
    require_claimed(held)
    if end.devices_released:
        free_devices(session, held.member, now=now)
    fenced = _fenced(held, end.fence)
    if fenced is None and held.member.state not in TERMINAL_MEMBER:
        _end(session, held, end, now=now)
    return EndTaken(acknowledge(held), fenced)


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
    }
    if end.tick is not None:
        columns["tick"] = end.tick.model_dump(mode="json")
    move_member(session, held.member, MemberState.EXITED, now=now, reason=end.reason, columns=columns)
    if not end.devices_released:
        quarantine_devices(session, held.member, "death_not_proven", now=now)
    settle_attempt(session, held.run, held.attempt, now=now)
