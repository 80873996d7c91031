"""Gives devices back: free with proof that their processes are dead, quarantined without."""

from typing import Any, Literal

from sqlalchemy.orm import Session

from drumline.contracts.states import DEVICE_MOVES, DeviceState
from drumline_server.attempts.queries import held_devices
from drumline_server.models import Device, Hold, Member
from drumline_server.moves import move_device
from drumline_server.wakeups import QUEUE, announce

Doubt = Literal["lease_ran_out", "death_not_proven"]
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
        if _is_still_of(device, hold) and device.state != DeviceState.FREE:
            move_device(session, device, DeviceState.FREE, columns=FREED)
        _end(hold, now)
    announce(session, QUEUE)


def quarantine_devices(session: Session, member: Member, doubt: Doubt, *, now: int) -> None:
    """Ends the holds of a member that may still be alive: nobody gets its devices before it is proven dead."""
    columns = {"quarantined_at": now, "quarantine_reason": doubt, "quarantine_member": member.id, "probed_at": None}
    for hold, device in held_devices(session, member.id):
        movable = DeviceState.QUARANTINED in DEVICE_MOVES[DeviceState(device.state)]
        if _is_still_of(device, hold) and movable:
            move_device(session, device, DeviceState.QUARANTINED, columns=columns)
        _end(hold, now)
    announce(session, QUEUE)


def await_release(session: Session, member: Member) -> None:
    """Marks the member's devices as about to come back: its worker was told to kill it."""
    for hold, device in held_devices(session, member.id):
        if _is_still_of(device, hold) and device.state == DeviceState.HELD:
            move_device(session, device, DeviceState.RELEASING)


def _end(hold: Hold, now: int) -> None:
    if hold.released_at is None:
        hold.released_at = now


def _is_still_of(device: Device, hold: Hold) -> bool:
    """Whether nobody was given the device after this hold; a quarantined device keeps its last holder."""
    return device.attempt_id == hold.attempt_id and device.fence == hold.fence
