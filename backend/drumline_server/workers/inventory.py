"""The devices of a host, as its newest registration lists them."""

from collections.abc import Iterable, Sequence

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from drumline.contracts.ids import new_id
from drumline.contracts.problems import ProblemCode
from drumline.contracts.states import DeviceState, MemberState
from drumline.contracts.worker_api import DeviceReport
from drumline_server.attempts.release import FREED
from drumline_server.errors import DrumlineError
from drumline_server.models import Device, Hold, Host, Member
from drumline_server.moves import move_device
from drumline_server.workers.succession import Change

Key = tuple[str, int]
_UNSEEN = {
    Change.REBOOT: frozenset[DeviceState](),
    Change.RESTART: frozenset({DeviceState.QUARANTINED}),
    Change.MOVE: frozenset({DeviceState.QUARANTINED, DeviceState.RELEASING}),
}
"""Devices of whose last holder the worker has not seen the end: a restarted one looks, but some things hide."""


def take(
    session: Session, host: Host, reports: Sequence[DeviceReport], holders: set[str], change: Change, *, now: int
) -> list[str]:
    """Stores the inventory and returns ids in the order of `reports`.

    Held devices whose holder is not among the members `holders` are free. Of quarantined ones only a reboot proves as
    much without a probe.
    Raises DrumlineError invalid_request for a device that is listed twice.
    """
    known = {(device.platform, device.position): device for device in _devices(session, host)}
    listed: dict[Key, DeviceReport] = {(report.platform, report.index): report for report in reports}
    if len(listed) != len(reports):
        raise DrumlineError(ProblemCode.INVALID_REQUEST, "devices: one of them is listed twice.")
    for key, device in known.items():
        device.present = key in listed
    session.flush()
    _free_unheld(session, host, known.values(), holders, _UNSEEN[change], now=now)
    return [_upsert(session, host, report, known).id for report in reports]


def _devices(session: Session, host: Host) -> Sequence[Device]:
    query = select(Device).where(Device.host_id == host.id)
    return session.scalars(query, execution_options={"populate_existing": True}).all()


def _free_unheld(
    session: Session,
    host: Host,
    devices: Iterable[Device],
    holders: set[str],
    unseen: frozenset[DeviceState],
    *,
    now: int,
) -> None:
    kept = _kept_devices(session, host, holders)
    for device in devices:
        if device.state not in (DeviceState.FREE, *unseen) and device.id not in kept:
            move_device(session, device, DeviceState.FREE, columns=FREED)
            open_hold = (Hold.device_id == device.id, Hold.released_at.is_(None))
            session.execute(update(Hold).where(*open_hold).values(released_at=now))


def _kept_devices(session: Session, host: Host, holders: set[str]) -> set[str]:
    """Devices whose holder is or may be alive, or has not begun and will."""
    query = (
        select(Device.id)
        .join(Hold, (Hold.device_id == Device.id) & (Hold.attempt_id == Device.attempt_id))
        .join(Member, Member.id == Hold.member_id)
        .where(Device.host_id == host.id, (Member.state == MemberState.PENDING) | Member.id.in_(holders))
    )
    return set(session.scalars(query))


def _upsert(session: Session, host: Host, report: DeviceReport, known: dict[Key, Device]) -> Device:
    device = known.get((report.platform, report.index))
    if device is None:
        device = Device(
            id=new_id("dev"),
            project_id=host.project_id,
            host_id=host.id,
            platform=report.platform,
            position=report.index,
            state=DeviceState.FREE,
            fence=0,
        )
        session.add(device)
    device.present = True
    device.kind = report.kind
    device.memory_bytes = report.memory_bytes
    device.coords = None if report.coords is None else list(report.coords)
    device.core_on_chip = report.core_on_chip
    device.simulated = report.simulated
    session.flush()
    return device
