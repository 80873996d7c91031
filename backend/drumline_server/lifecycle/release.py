"""Stops what has devices, and gives devices back: free with proof that their processes are dead, else quarantined."""

from typing import Any, Literal

from sqlalchemy.orm import Session

from drumline.contracts.reasons import REASONS, EndReason
from drumline.contracts.states import (
    DEVICE_TRANSITIONS,
    TERMINAL_MEMBER,
    AttemptState,
    DeviceState,
    MemberState,
    RunState,
)
from drumline_server.lifecycle.transitions import (
    transition_attempt,
    transition_device,
    transition_member,
    transition_run,
)
from drumline_server.storage.models import Attempt, Device, Hold, Member, Run
from drumline_server.storage.notifications import QUEUE, announce, notify
from drumline_server.storage.runs import held_devices, live_attempt, members_of

QuarantineReason = Literal["lease_ran_out", "death_not_proven"]
"""Why nobody knows whether the holder of a device is dead."""
FREED: dict[str, Any] = {  # Any: columns of a device
    "attempt_id": None,
    "quarantined_at": None,
    "quarantine_reason": None,
    "quarantine_member": None,
    "probed_at": None,
    "probe_message": "",
}
"""What a device no longer has once it is free."""


def free_devices(session: Session, member: Member, *, now: int) -> None:
    """Ends the holds of a member that is dead. Devices that were quarantined for it become free as well."""
    for hold, device in held_devices(session, member.id):
        if _is_held_by(device, hold) and device.state != DeviceState.FREE:
            transition_device(session, device, DeviceState.FREE, columns=FREED)
        _end_holds(hold, now)
    announce(session, QUEUE)


def quarantine_devices(session: Session, member: Member, doubt: QuarantineReason, *, now: int) -> None:
    """Ends the holds of a member that may still be alive: nobody gets its devices before it is proven dead."""
    columns = {"quarantined_at": now, "quarantine_reason": doubt, "quarantine_member": member.id, "probed_at": None}
    for hold, device in held_devices(session, member.id):
        movable = DeviceState.QUARANTINED in DEVICE_TRANSITIONS[DeviceState(device.state)]
        if _is_held_by(device, hold) and movable:
            transition_device(session, device, DeviceState.QUARANTINED, columns=columns)
        _end_holds(hold, now)
    announce(session, QUEUE)


def await_release(session: Session, member: Member) -> None:
    """Marks the member's devices as about to come back: its worker was told to kill it."""
    for hold, device in held_devices(session, member.id):
        if _is_held_by(device, hold) and device.state == DeviceState.HELD:
            transition_device(session, device, DeviceState.RELEASING)


def _end_holds(hold: Hold, now: int) -> None:
    if hold.released_at is None:
        hold.released_at = now


def _is_held_by(device: Device, hold: Hold) -> bool:
    """Whether nobody was given the device after this hold; a quarantined device keeps its last holder."""
    return device.attempt_id == hold.attempt_id and device.fence == hold.fence


def stop_run(session: Session, run: Run, reason: EndReason, *, now: int) -> None:
    """Moves a PLACED or RUNNING run to CANCELLING, and to its end if no member had begun. The run is locked."""
    attempt = live_attempt(session, run.id)
    assert attempt is not None, f"{run.id} is {run.state} without a live attempt"
    transition_run(session, run, RunState.CANCELLING, now=now, columns={"stop_reason": reason})
    # Nobody has claimed it: no process exists whose death would have to be proven first.
    if attempt.state == AttemptState.DISPATCHED and not _has_started(session, attempt):
        end_unstarted_attempt(session, attempt, AttemptState.CANCELLED, reason, now=now)
        message = stopped_by(run) if reason is EndReason.CANCELLED else ""
        columns = {"reason_message": message}
        transition_run(session, run, end_state(reason), now=now, reason=reason, columns=columns)
        return
    for member in members_of(session, attempt.id):
        if member.state == MemberState.PENDING:
            transition_member(session, member, MemberState.FENCED, now=now, reason=reason)
            free_devices(session, member, now=now)
        elif member.state not in TERMINAL_MEMBER:
            notify(session, member.host_id)


def stopped_by(run: Run, told: str = "") -> str:
    """That a run was stopped on request, and by whom; `told` is what its worker says of the same, which knows nobody.

    Without a request, as where a program ends itself as if it were cancelled, `told` as it is.
    """
    if run.cancel_requested_at is None or run.cancel_requested_by is None:
        return told
    sentence = REASONS[EndReason.CANCELLED].sentence
    named = f"{sentence.removesuffix('.')} by {run.cancel_requested_by}."
    return named if told in ("", sentence) else f"{named} {told.removeprefix(sentence).strip()}".rstrip()


def end_state(reason: EndReason) -> RunState:
    """Where a run ends that the server stopped for `reason`."""
    return RunState.CANCELLED if reason is EndReason.CANCELLED else RunState.FAILED


def end_unstarted_attempt(session: Session, attempt: Attempt, to: AttemptState, reason: EndReason, *, now: int) -> None:
    """Ends an attempt that did not come to run. Claimed members are fenced off, and their worker proves their end."""
    for member in members_of(session, attempt.id):
        if member.state in TERMINAL_MEMBER:
            continue
        begun = member.state != MemberState.PENDING
        transition_member(session, member, MemberState.FENCED, now=now)
        if begun:
            await_release(session, member)
        else:
            free_devices(session, member, now=now)
    transition_attempt(session, attempt, to, now=now, reason=reason)


def _has_started(session: Session, attempt: Attempt) -> bool:
    return any(member.state != MemberState.PENDING for member in members_of(session, attempt.id))
