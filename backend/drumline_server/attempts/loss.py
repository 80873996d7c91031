"""Loses members: of hosts that fell silent, rebooted or came back without them."""

from sqlalchemy.orm import Session

from drumline.contracts.reasons import EndReason
from drumline.contracts.states import MemberState
from drumline_server.attempts import gaps
from drumline_server.attempts.outcome import settle_attempt
from drumline_server.attempts.release import Doubt, free_devices, quarantine_devices
from drumline_server.models import Attempt, Member, Run
from drumline_server.moves import move_member


def lose_member(
    session: Session,
    run: Run,
    attempt: Attempt,
    member: Member,
    reason: EndReason,
    *,
    proven_dead: bool,
    now: int,
) -> None:
    """Ends a member that had begun, on the server's own knowledge. The run is locked."""
    had_begun = member.acked_seq > 0 or member.tick is not None
    if not move_member(session, member, MemberState.LOST, now=now, reason=reason):
        return
    if had_begun:
        gaps.record_lost_rest(session, member, "its host was lost before it had sent all", now=now)
    if proven_dead:
        free_devices(session, member, now=now)
    else:
        doubt: Doubt = "lease_ran_out" if reason is EndReason.LOST else "death_not_proven"
        quarantine_devices(session, member, doubt, now=now)
    settle_attempt(session, run, attempt, now=now)
