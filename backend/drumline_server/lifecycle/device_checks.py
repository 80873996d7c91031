"""Checks of quarantined devices by their workers: free is one whose last holder is dead, and which computes (P10)."""

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from drumline.contracts.states import DeviceState
from drumline.contracts.worker_api import DeviceCheck, DeviceCheckReport, DeviceCheckReports
from drumline_server.lifecycle.guard import require_incarnation
from drumline_server.lifecycle.release import FREED
from drumline_server.lifecycle.transitions import transition_device
from drumline_server.storage.models import Device
from drumline_server.storage.notifications import QUEUE, announce, host_list

CHECK_EVERY_US = 60 * 1_000_000
"""How long after a check that did not free its device the next one is asked for."""


def due_device_checks(session: Session, host_id: str, *, now: int) -> tuple[DeviceCheck, ...]:
    """The quarantined devices of a host that are to be checked now."""
    query = (
        select(Device)
        .where(
            Device.host_id == host_id,
            Device.state == DeviceState.QUARANTINED,
            Device.present.is_(True),
            Device.quarantine_member.is_not(None),
            or_(Device.probed_at.is_(None), Device.probed_at <= now - CHECK_EVERY_US),
        )
        .order_by(Device.platform, Device.position)
    )
    return tuple(
        DeviceCheck.model_validate(
            {
                "device": device.id,
                "platform": device.platform,
                "index": device.position,
                "fence": device.fence,
                "member": device.quarantine_member,
            }
        )
        for device in session.scalars(query)
    )


def record_device_checks(session: Session, host_id: str, body: DeviceCheckReports, *, now: int) -> None:
    """Frees what was found usable and without survivors; of the rest it keeps what was found.

    A report on a device that is not quarantined any more, or for another holder, changes nothing.
    Raises DrumlineError fenced for an old incarnation.
    """
    require_incarnation(session, host_id, body.incarnation)
    for report in body.probes:
        query = select(Device).where(Device.id == report.device, Device.host_id == host_id).with_for_update()
        device = session.scalar(query, execution_options={"populate_existing": True})
        if device is None or device.state != DeviceState.QUARANTINED or device.fence != report.fence:
            continue
        if report.usable and not report.survivors:
            transition_device(session, device, DeviceState.FREE, columns=FREED)
            announce(session, QUEUE)
        else:
            device.probed_at, device.probe_message = now, _describe_finding(report)
            announce(session, host_list(host_id))


def _describe_finding(report: DeviceCheckReport) -> str:
    if report.survivors:
        pids = ", ".join(map(str, report.survivors))
        return f"Processes of its last holder survive SIGKILL: {pids}."
    return report.message or "A program on it did not give the right answer."
