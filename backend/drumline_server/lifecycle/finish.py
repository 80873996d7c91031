"""How members and attempts end: what ended them, and what follows for the run.

The end of an attempt is decided by its members, shown once their telemetry is stored, then followed by its run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr
from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts.events import MemberAck, MemberEnd
from drumline.contracts.programs import MemberTick
from drumline.contracts.reasons import REASONS, Category, EndReason
from drumline.contracts.states import TERMINAL_ATTEMPT, TERMINAL_MEMBER, AttemptState, MemberState, RunState
from drumline_server.base.errors import DrumlineError, FencedError
from drumline_server.lifecycle import aftermath
from drumline_server.lifecycle.aftermath import QuarantineReason, free_devices, quarantine_devices
from drumline_server.lifecycle.alerts import record_stall
from drumline_server.lifecycle.guard import (
    LockedMember,
    acknowledge,
    lock_member,
    require_claimed,
    require_fence,
    require_incarnation,
    require_key,
    require_same_incarnation,
)
from drumline_server.lifecycle.transitions import transition_attempt, transition_member, transition_run
from drumline_server.storage import history
from drumline_server.storage.models import Attempt, Host, Member, Run
from drumline_server.storage.notifications import notify
from drumline_server.storage.runs import held_devices, members_of

SILENT_S = 3.0
"""A process that is silent for so many seconds, six ticks, is stopped, or a call holds its interpreter.

Shorter than limits of progress usually are: when one runs out, a process that stopped at its last progress counts.
"""
_MAX_NAMED = 4
_MICROS = 1_000_000
_DEATHS = frozenset({EndReason.KILLED, EndReason.OUT_OF_MEMORY})
"""From outside, and no program of another member can bring them about."""
_OF_PROGRAM = frozenset({EndReason.PROGRAM_ERROR, EndReason.PROGRAM_EXITED})
"""What a program may make of a collective that failed as another member died."""


@dataclass(frozen=True, slots=True)
class _MemberProgress:
    member: Member
    tick: MemberTick

    @property
    def place(self) -> tuple[int, int]:
        return self.tick.advances, self.tick.collectives

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for others: it is in a step, and its process still tells so."""
        return self.tick.activity == "in_step" and not self.silent

    @property
    def silent(self) -> bool:
        return self.tick.silent_s >= SILENT_S


def _describe_gang(session: Session, members: Sequence[Member]) -> str:
    """Which members are behind and what they do; empty for a gang of one, whose shim has said it."""
    seen = _last_heard(members)
    if len(members) == 1 or not seen:
        return ""
    late = _late_members(seen)
    if not late:
        return f"All {len(members)} members wait in the same place, after {seen[0].tick.advances} steps or logs."
    named = "; ".join(_describe(session, each) for each in late[:_MAX_NAMED])
    more = f"; and {len(late) - _MAX_NAMED} more" if len(late) > _MAX_NAMED else ""
    return f"Has not arrived: {named}{more}. {_describe_others(seen, late)}"


def _late_members(seen: Sequence[_MemberProgress]) -> list[_MemberProgress]:
    """Whom the others wait for: the silent; if that is none or all, those at the lowest place; else those in no step.

    Who is ahead may be the cause: a process that stops after its step may still owe its peers a part of the collective.
    """
    lowest = min(each.place for each in seen)
    silent = [each for each in seen if each.silent]
    behind = [each for each in seen if each.place == lowest]
    absent = [each for each in seen if not each.is_waiting]
    return next((group for group in (silent, behind, absent) if 0 < len(group) < len(seen)), [])


def _describe(session: Session, each: _MemberProgress) -> str:
    replicas = sorted({hold.replica for hold, _ in held_devices(session, each.member.id)})
    which = f"replica{'s' * (len(replicas) > 1)} {', '.join(map(str, replicas))}"
    host = session.get_one(Host, each.member.host_id).name
    doing = _describe_activity(each)
    return f"rank {each.member.rank} on {host} ({which}), after {each.tick.advances} steps or logs, {doing}"


def _describe_activity(each: _MemberProgress) -> str:
    if each.silent:
        return "whose process does not answer: it is stopped, or a call holds its interpreter"
    return {
        "rendezvous": "still on its way to the rendezvous",
        "own_code": "in the program's own code",
        "compiling": "compiling",
        "in_step": "in a step",
        "finishing": "finishing",
    }[each.tick.activity]


def _describe_others(seen: Sequence[_MemberProgress], late: Sequence[_MemberProgress]) -> str:
    rest = [each for each in seen if each not in late]
    furthest = max((each.tick.advances for each in rest), default=0)
    return f"{len(rest)} other{'s wait' if len(rest) > 1 else ' waits'}, after {furthest}."


def _describe_silent(session: Session, members: Sequence[Member]) -> str:
    """As `_describe_gang`, if some of the processes did not answer in the end and others did; else empty."""
    silent = [each for each in _last_heard(members) if each.silent]
    return _describe_gang(session, members) if 0 < len(silent) < len(members) else ""


def _describe_loss(session: Session, member: Member) -> str:
    """What the member said of its end; with its name where it, and not its program, is what failed."""
    reason = EndReason(member.reason_code or EndReason.LOST)
    facts = REASONS[reason]
    of_process = facts.category is Category.INFRASTRUCTURE or reason in (
        EndReason.PROGRAM_CRASHED,
        EndReason.PROGRAM_EXITED,
    )
    if facts.is_of_gang or not of_process:
        return member.reason_message
    host = session.get_one(Host, member.host_id).name
    return f"Rank {member.rank} on {host}: {member.reason_message or facts.sentence}"


def _last_heard(members: Sequence[Member]) -> list[_MemberProgress]:
    return [
        _MemberProgress(member, MemberTick.model_validate(member.tick)) for member in members if member.tick is not None
    ]


def reconcile_attempt(session: Session, run: Run, attempt: Attempt, *, now: int) -> None:
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
    # Nothing ran, so there is no telemetry to wait for.
    if attempt.state == AttemptState.DISPATCHED:
        aftermath.end_unstarted_attempt(session, attempt, REASONS[reason].attempt_state, reason, now=now)
        _reconcile_run(session, run, reason, message, now=now)
        return
    if attempt.state != AttemptState.FINISHING:
        _begin_finishing(session, attempt, members, reason, message, now=now)
    if all_gone and all(_is_drained(member) for member in members):
        close_attempt(session, run, attempt, now=now)


def mark_gang_hung(session: Session, attempt: Attempt, *, now: int) -> None:
    """A member of a gang is taken for hung by its shim: all of them dump their stacks and end. The run is locked."""
    members = members_of(session, attempt.id)
    begun = attempt.state not in TERMINAL_ATTEMPT | {AttemptState.DISPATCHED, AttemptState.FINISHING}
    if begun and len(members) > 1:
        _begin_finishing(session, attempt, members, EndReason.HANG, "", now=now)


def close_attempt(session: Session, run: Run, attempt: Attempt, *, now: int) -> None:
    """Ends a FINISHING attempt and lets its run follow. What telemetry is still missing is recorded as a gap."""
    # Before the transition: its event may be the last of the run's stream.
    for member in members_of(session, attempt.id):
        if member.state == MemberState.EXITED and not (_is_drained(member) and _has_all_output(member)):
            history.record_lost_rest(session, member, "its host did not send it", now=now)
    reason, message = _root_cause(session, attempt)
    if reason is EndReason.HANG:
        record_stall(session, run, now=now)
    transition_attempt(
        session, attempt, REASONS[reason].attempt_state, now=now, reason=reason, columns={"reason_message": message}
    )
    _reconcile_run(session, run, reason, message, now=now)


def _root_cause(session: Session, attempt: Attempt) -> tuple[EndReason, str]:
    """What the attempt ends of, and who of a gang is meant. Who ended because of another may have reported first."""
    members = members_of(session, attempt.id)
    reason, message = EndReason(attempt.reason_code or EndReason.LOST), attempt.reason_message
    first = _first_failure(members)
    if reason in _OF_PROGRAM:
        first = _first_failure([member for member in members if member.reason_code in _DEATHS])
    if first is not None and (REASONS[reason].is_consequence or reason in _OF_PROGRAM):
        reason, message = EndReason(first.reason_code or EndReason.LOST), first.reason_message
    if reason is EndReason.PEER_LOST and (silent := _describe_silent(session, members)):
        return EndReason.HANG, silent  # nobody has died: JAX ended those who waited for one that stands still
    if reason is EndReason.HANG:
        return reason, _describe_gang(session, members) or message
    meant = _first_failure([member for member in members if member.reason_code == reason])
    if meant is not None and len(members) > 1:
        message = _describe_loss(session, meant)
    return reason, message


def _begin_finishing(
    session: Session, attempt: Attempt, members: Sequence[Member], reason: EndReason, message: str, *, now: int
) -> None:
    """The attempt is decided; whoever still runs is told to stop."""
    columns = {"finishing_at": now, "reason_message": message}
    transition_attempt(session, attempt, AttemptState.FINISHING, now=now, reason=reason, columns=columns)
    for member in members:
        if member.state not in TERMINAL_MEMBER:
            notify(session, member.host_id)


def _first_failure(members: Sequence[Member]) -> Member | None:
    """The member whose end explains the attempt's: the earliest that is no mere consequence of another."""
    failed = [
        member for member in members if member.state in TERMINAL_MEMBER and member.reason_code != EndReason.COMPLETED
    ]
    return min(failed, key=lambda member: (_is_consequence(member), member.ended_at, member.rank), default=None)


def _is_consequence(member: Member) -> bool:
    return REASONS[EndReason(member.reason_code or EndReason.LOST)].is_consequence


def _is_drained(member: Member) -> bool:
    """Whether all telemetry that will come has come; nothing is awaited of a lost or fenced member."""
    return member.state != MemberState.EXITED or member.acked_seq >= (member.last_seq or 0)


def _has_all_output(member: Member) -> bool:
    return member.output_bytes is None or member.log_bytes >= member.output_bytes


def _reconcile_run(session: Session, run: Run, reason: EndReason, message: str, *, now: int) -> None:
    over_limit = run.stop_reason == EndReason.RUN_LIMIT  # who returns in its grace has broken it all the same
    if reason is EndReason.COMPLETED and not over_limit:
        transition_run(session, run, RunState.SUCCEEDED, now=now, reason=reason)
    elif run.state == RunState.CANCELLING:
        _end_stopped_run(session, run, reason, message, now=now)
    # The program stopped itself as if cancelled; no transition leads past CANCELLING.
    elif reason is EndReason.CANCELLED:
        transition_run(session, run, RunState.CANCELLING, now=now, columns={"stop_reason": reason})
        transition_run(session, run, RunState.CANCELLED, now=now, reason=reason, columns={"reason_message": message})
    else:
        aftermath.retry_or_fail(session, run, reason, message, now=now)


def _end_stopped_run(session: Session, run: Run, reason: EndReason, message: str, *, now: int) -> None:
    if REASONS[reason].outranks_cancel:
        transition_run(session, run, RunState.FAILED, now=now, reason=reason, columns={"reason_message": message})
        return
    stopped_for = EndReason(run.stop_reason or EndReason.CANCELLED)
    columns = {"reason_message": _stop_message(run, stopped_for, message if reason is stopped_for else "")}
    transition_run(session, run, aftermath.end_state(stopped_for), now=now, reason=stopped_for, columns=columns)


def _stop_message(run: Run, stopped_for: EndReason, told: str) -> str:
    """Why the server stopped a run; `told` is what its worker says of the same reason."""
    if stopped_for is EndReason.RUN_LIMIT:
        return told or f"The limit was {run.limits['run_s']:g} s."
    return aftermath.stopped_by(run, told)


def mark_member_lost(
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
    if not transition_member(session, member, MemberState.LOST, now=now, reason=reason):
        return
    if had_begun:
        history.record_lost_rest(session, member, "its host was lost before it had sent all", now=now)
    if proven_dead:
        free_devices(session, member, now=now)
    else:
        doubt: QuarantineReason = "lease_ran_out" if reason is EndReason.LOST else "death_not_proven"
        quarantine_devices(session, member, doubt, now=now)
    reconcile_attempt(session, run, attempt, now=now)


@dataclass(frozen=True, slots=True)
class RecordedEnd:
    """What became of a report: `fenced` is set where it came too late to count, though its proof of death did."""

    ack: MemberAck
    fenced: DrumlineError | None = None


def end_member(
    session: Session, host_id: str, member_id: str, end: MemberEnd, *, key: SecretStr | None, now: int
) -> RecordedEnd:
    """Ends a member. The same report again is answered alike; the attempt ends once its telemetry is stored.

    Raises NotFoundError; as `require_key`; DrumlineError fenced for an old incarnation, but for the death of what it
    left behind.
    """
    try:
        require_incarnation(session, host_id, end.incarnation)
    except DrumlineError as refusal:
        locked = _find_left_behind(session, host_id, member_id, end, key)
        if locked is None:
            raise
        _mark_left_behind_lost(session, locked, now=now)
        return RecordedEnd(acknowledge(locked), refusal)
    locked = lock_member(session, host_id, member_id)
    require_claimed(locked)
    require_key(locked, key)
    require_same_incarnation(locked, end.incarnation)
    # Before the fence is compared: a proof of death counts whoever brings it, and however late.
    if end.devices_released:
        free_devices(session, locked.member, now=now)
    fenced = _fencing_error(locked, end.fence)
    if fenced is None and locked.member.state not in TERMINAL_MEMBER:
        _record_end(session, locked, end, now=now)
    return RecordedEnd(acknowledge(locked), fenced)


def _find_left_behind(
    session: Session, host_id: str, member_id: str, end: MemberEnd, key: SecretStr | None
) -> LockedMember | None:
    """A member whose host moved away, if this is the proof of its death by the worker that had to make way."""
    incarnation = session.scalar(select(Member.incarnation_id).where(Member.id == member_id, Member.host_id == host_id))
    if incarnation != end.incarnation or not end.devices_released:
        return None
    locked = lock_member(session, host_id, member_id)
    require_key(locked, key)
    is_left = locked.member.incarnation_id == end.incarnation and locked.member.state not in TERMINAL_MEMBER
    return locked if is_left else None


def _mark_left_behind_lost(session: Session, locked: LockedMember, *, now: int) -> None:
    """How it ended does not count, as the rest of its telemetry will never come; nor is it counted as a failure."""
    mark_member_lost(session, locked.run, locked.attempt, locked.member, EndReason.PREEMPTED, proven_dead=True, now=now)


def _fencing_error(locked: LockedMember, fence: int) -> FencedError | None:
    if locked.member.state in (MemberState.LOST, MemberState.FENCED):
        return FencedError(locked.member.id, fence, locked.run.fence)
    try:
        require_fence(locked, fence)
    except FencedError as error:
        return error
    return None


def _record_end(session: Session, locked: LockedMember, end: MemberEnd, *, now: int) -> None:
    columns: dict[str, Any] = {
        "reason_message": end.message,
        "exit_code": end.exit_code,
        "signal": end.signal,
        "last_seq": end.last_seq,
        "output_bytes": end.output_bytes,
        "telemetry_at": now,
    }
    if end.waited_s is not None:
        columns["end_waited_us"] = int(end.waited_s * _MICROS)
    if end.tick is not None:
        columns["tick"] = end.tick.model_dump(mode="json")
    transition_member(session, locked.member, MemberState.EXITED, now=now, reason=end.reason, columns=columns)
    if not end.devices_released:
        quarantine_devices(session, locked.member, "death_not_proven", now=now)
    reconcile_attempt(session, locked.run, locked.attempt, now=now)
