"""How an attempt ends: decided by its members, shown once their telemetry is stored, then followed by its run."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from drumline.contracts.reasons import EndReason
from drumline.contracts.states import TERMINAL_ATTEMPT, TERMINAL_MEMBER, AttemptState, MemberState, RunState
from drumline_server.attempts import gaps, hangs, retries, stopping
from drumline_server.attempts.queries import members_of
from drumline_server.models import Attempt, Member, Run
from drumline_server.moves import move_attempt, move_run
from drumline_server.wakeups import notify

_END_STATES: dict[EndReason, AttemptState] = {
    EndReason.COMPLETED: AttemptState.SUCCEEDED,
    EndReason.CANCELLED: AttemptState.CANCELLED,
    EndReason.PREEMPTED: AttemptState.PREEMPTED,
    EndReason.LOST: AttemptState.LOST,
    EndReason.HOST_REBOOTED: AttemptState.LOST,
}
_CONSEQUENCES = frozenset({EndReason.PEER_LOST, EndReason.CANCELLED})
"""Reasons of members that follow from another member's end, which tells more."""
_OWN_FAULTS = frozenset({EndReason.PROGRAM_ERROR, EndReason.BAD_RESULT, EndReason.BAD_PROGRAM})
"""What a program that is being cancelled can still fail of; any other end of it is the cancel's."""


def settle_attempt(session: Session, run: Run, attempt: Attempt, *, now: int) -> None:
    """Brings a live attempt as far towards its end as its members are. Call it after each change; the run is locked."""
    if attempt.state in TERMINAL_ATTEMPT:
        return
    members = members_of(session, attempt.id)
    all_gone = all(member.state in TERMINAL_MEMBER for member in members)
    failed = _first_failure(members)
    if failed is None and not all_gone:
        return
    reason = EndReason(failed.reason_code or EndReason.LOST) if failed else EndReason.COMPLETED
    message = failed.reason_message if failed else ""
    if attempt.state == AttemptState.DISPATCHED:
        stopping.abandon(session, attempt, _end_state(reason), reason, now=now)
        _settle_run(session, run, reason, message, now=now)
        return
    if attempt.state != AttemptState.FINISHING:
        _finish(session, attempt, members, reason, message, now=now)
    if all_gone and all(_is_drained(member) for member in members):
        close_attempt(session, run, attempt, now=now)


def hang_gang(session: Session, attempt: Attempt, *, now: int) -> None:
    """A member of a gang is taken for hung by its shim: all of them dump their stacks and end. The run is locked."""
    members = members_of(session, attempt.id)
    begun = attempt.state not in TERMINAL_ATTEMPT | {AttemptState.DISPATCHED, AttemptState.FINISHING}
    if begun and len(members) > 1:
        _finish(session, attempt, members, EndReason.HANG, "", now=now)


def close_attempt(session: Session, run: Run, attempt: Attempt, *, now: int) -> None:
    """Ends a FINISHING attempt and lets its run follow. What telemetry is still missing is recorded as a gap."""
    for member in members_of(session, attempt.id):
        if member.state == MemberState.EXITED and not (_is_drained(member) and _has_all_output(member)):
            gaps.record_lost_rest(session, member, "its host did not send it", now=now)
    reason, told = _cause(session, attempt)
    message = hangs.describe_gang(session, attempt) if reason is EndReason.HANG else ""
    message = message or told
    move_attempt(session, attempt, _end_state(reason), now=now, reason=reason, columns={"reason_message": message})
    _settle_run(session, run, reason, message, now=now)


def _cause(session: Session, attempt: Attempt) -> tuple[EndReason, str]:
    """What the attempt ends of. A member that went along may have told so before the one that it went with."""
    reason = EndReason(attempt.reason_code or EndReason.LOST)
    first = _first_failure(members_of(session, attempt.id)) if reason in _CONSEQUENCES else None
    if first is None:
        return reason, attempt.reason_message
    return EndReason(first.reason_code or EndReason.LOST), first.reason_message


def _finish(
    session: Session, attempt: Attempt, members: Sequence[Member], reason: EndReason, message: str, *, now: int
) -> None:
    """The attempt is decided; whoever still runs is told to stop."""
    columns = {"finishing_at": now, "reason_message": message}
    move_attempt(session, attempt, AttemptState.FINISHING, now=now, reason=reason, columns=columns)
    for member in members:
        if member.state not in TERMINAL_MEMBER:
            notify(session, member.host_id)


def _first_failure(members: Sequence[Member]) -> Member | None:
    """The member whose end explains the attempt's: the earliest that is no mere consequence of another."""
    failed = [
        member for member in members if member.state in TERMINAL_MEMBER and member.reason_code != EndReason.COMPLETED
    ]
    return min(
        failed, key=lambda member: (member.reason_code in _CONSEQUENCES, member.ended_at, member.rank), default=None
    )


def _is_drained(member: Member) -> bool:
    """Whether all telemetry that will come has come; nothing is awaited of a lost or fenced member."""
    return member.state != MemberState.EXITED or member.acked_seq >= (member.last_seq or 0)


def _has_all_output(member: Member) -> bool:
    return member.output_bytes is None or member.log_bytes >= member.output_bytes


def _end_state(reason: EndReason) -> AttemptState:
    return _END_STATES.get(reason, AttemptState.FAILED)


def _settle_run(session: Session, run: Run, reason: EndReason, message: str, *, now: int) -> None:
    over_limit = run.stop_reason == EndReason.RUN_LIMIT  # who returns in its grace has broken it all the same
    if reason is EndReason.COMPLETED and not over_limit:
        move_run(session, run, RunState.SUCCEEDED, now=now, reason=reason)
    elif run.state == RunState.CANCELLING:
        _settle_stopped(session, run, reason, message, now=now)
    elif reason is EndReason.CANCELLED:
        move_run(session, run, RunState.CANCELLING, now=now, columns={"stop_reason": reason})
        move_run(session, run, RunState.CANCELLED, now=now, reason=reason, columns={"reason_message": message})
    else:
        retries.retry_or_fail(session, run, reason, message, now=now)


def _settle_stopped(session: Session, run: Run, reason: EndReason, message: str, *, now: int) -> None:
    if reason in _OWN_FAULTS:
        move_run(session, run, RunState.FAILED, now=now, reason=reason, columns={"reason_message": message})
        return
    stopped_for = EndReason(run.stop_reason or EndReason.CANCELLED)
    columns = {"reason_message": message if reason is stopped_for else _limit_message(run, stopped_for)}
    move_run(session, run, stopping.end_state(stopped_for), now=now, reason=stopped_for, columns=columns)


def _limit_message(run: Run, stopped_for: EndReason) -> str:
    return f"The limit was {run.limits['run_s']:g} s." if stopped_for is EndReason.RUN_LIMIT else ""
