"""Stops a run that has devices: what has not begun ends at once, what runs is told to stop."""

from sqlalchemy.orm import Session

from drumline.contracts.reasons import EndReason
from drumline.contracts.states import TERMINAL_MEMBER, AttemptState, MemberState, RunState
from drumline_server.attempts.queries import live_attempt, members_of
from drumline_server.attempts.release import await_release, free_devices
from drumline_server.models import Attempt, Run
from drumline_server.moves import move_attempt, move_member, move_run
from drumline_server.wakeups import notify


def stop_run(session: Session, run: Run, reason: EndReason, *, now: int) -> None:
    """Moves a PLACED or RUNNING run to CANCELLING, and to its end if no member had begun. The run is locked."""
    attempt = live_attempt(session, run.id)
    assert attempt is not None, f"{run.id} is {run.state} without a live attempt"
    move_run(session, run, RunState.CANCELLING, now=now, columns={"stop_reason": reason})
    if attempt.state == AttemptState.DISPATCHED and not _has_begun(session, attempt):
        abandon(session, attempt, AttemptState.CANCELLED, reason, now=now)
        move_run(session, run, end_state(reason), now=now, reason=reason)
        return
    for member in members_of(session, attempt.id):
        if member.state == MemberState.PENDING:
            move_member(session, member, MemberState.FENCED, now=now, reason=reason)
            free_devices(session, member, now=now)
        elif member.state not in TERMINAL_MEMBER:
            notify(session, member.host_id)


def end_state(reason: EndReason) -> RunState:
    """Where a run ends that the server stopped for `reason`."""
    return RunState.CANCELLED if reason is EndReason.CANCELLED else RunState.FAILED


def abandon(session: Session, attempt: Attempt, to: AttemptState, reason: EndReason, *, now: int) -> None:
    """Ends an attempt that did not come to run. Claimed members are fenced off, and their worker proves their end."""
    for member in members_of(session, attempt.id):
        if member.state in TERMINAL_MEMBER:
            continue
        begun = member.state != MemberState.PENDING
        move_member(session, member, MemberState.FENCED, now=now)
        if begun:
            await_release(session, member)
        else:
            free_devices(session, member, now=now)
    move_attempt(session, attempt, to, now=now, reason=reason)


def _has_begun(session: Session, attempt: Attempt) -> bool:
    return any(member.state != MemberState.PENDING for member in members_of(session, attempt.id))
