"""Asks workers to probe quarantined devices, and frees those whose last holder is dead (P10)."""

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from drumline.contracts.states import DeviceState
from drumline.contracts.worker_api import ProbeReport, ProbeReports, ProbeRequest
from drumline_server.attempts.guard import require_incarnation
from drumline_server.attempts.release import FREED
from drumline_server.models import Device
from drumline_server.moves import move_device
from drumline_server.wakeups import QUEUE, announce

PROBE_EVERY_US = 60 * 1_000_000
"""How long after a probe that did not free its device the next one is asked for."""


def wanted_probes(session: Session, host_id: str, *, now: int) -> tuple[ProbeRequest, ...]:
    """The quarantined devices of a host that are to be probed now."""
    query = (
        select(Device)
        .where(
            Device.host_id == host_id,
            Device.state == DeviceState.QUARANTINED,
            Device.present.is_(True),
            Device.quarantine_member.is_not(None),
            or_(Device.probed_at.is_(None), Device.probed_at <= now - PROBE_EVERY_US),
        )
        .order_by(Device.platform, Device.position)
    )
    return tuple(
        ProbeRequest.model_validate(
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


def take_probes(session: Session, host_id: str, body: ProbeReports, *, now: int) -> None:
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
            move_device(session, device, DeviceState.FREE, columns=FREED)
            announce(session, QUEUE)
        else:
            device.probed_at, device.probe_message = now, _finding(report)
            announce(session, f"fleet:{host_id}")


def _finding(report: ProbeReport) -> str:
    if report.survivors:
        pids = ", ".join(map(str, report.survivors))
        return f"Processes of its last holder survive SIGKILL: {pids}."
    return report.message or "A program on it did not give the right answer."
