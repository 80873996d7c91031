"""What operators do with hosts and devices: drain, undrain, release. Each may be asked for twice."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.problems import ProblemCode
from drumline.contracts.states import DeviceState
from drumline_server import audit
from drumline_server.attempts.release import FREED
from drumline_server.devices import service
from drumline_server.errors import DrumlineError, NotFoundError
from drumline_server.models import Device, Host
from drumline_server.moves import move_device
from drumline_server.wakeups import QUEUE, announce


@dataclass(frozen=True, slots=True)
class Order:
    """Who wants something done to which host or device of a project, and when (microseconds)."""

    project_id: str
    target: str
    principal: str
    now: int


def drain_host(session: Session, order: Order, *, suspect_s: float) -> api.Host:
    """No more runs for the host; its worker asks those that run to stop, and they go on elsewhere (P18)."""
    host = _host(session, order)
    if host.drain_requested_at is None:
        host.drain_requested_at = order.now
        _note(session, order, "host.drain", host.id)
    return service.one_host(session, host, now=order.now, suspect_s=suspect_s)


def undrain_host(session: Session, order: Order, *, suspect_s: float) -> api.Host:
    """The host takes runs again."""
    host = _host(session, order)
    if host.drain_requested_at is not None:
        host.drain_requested_at = None
        _note(session, order, "host.undrain", host.id)
    return service.one_host(session, host, now=order.now, suspect_s=suspect_s)


def release_host(session: Session, order: Order, *, suspect_s: float) -> api.Host:
    """Ends the quarantine or the flag of a host; what failed there before counts no more (P14)."""
    host = _host(session, order)
    if host.quarantined_at is not None or host.flagged_at is not None:
        host.quarantined_at = host.flagged_at = host.failures = None
        host.released_at = order.now
        _note(session, order, "host.release", host.id)
    return service.one_host(session, host, now=order.now, suspect_s=suspect_s)


def release_device(session: Session, order: Order) -> api.Device:
    """Frees a quarantined device: the operator knows that its last holder is dead (P10).

    Raises NotFoundError; DrumlineError conflict for one that a run holds.
    """
    query = select(Device).where(Device.id == order.target, Device.project_id == order.project_id).with_for_update()
    device = session.scalar(query, execution_options={"populate_existing": True})
    if device is None:
        raise NotFoundError("device", order.target)
    if device.state == DeviceState.QUARANTINED:
        move_device(session, device, DeviceState.FREE, columns=FREED)
        _note(session, order, "device.release", device.host_id)
    elif device.state != DeviceState.FREE:
        raise DrumlineError(
            ProblemCode.CONFLICT,
            f"Device {device.id} is {device.state}, not quarantined.",
            hint="It becomes free when its run ends; cancel the run to end it now.",
            context={"device": device.id, "state": device.state},
        )
    return service.one_device(session, device.id)


def _host(session: Session, order: Order) -> Host:
    query = select(Host).where(
        Host.id == order.target, Host.project_id == order.project_id, Host.registered_at.is_not(None)
    )
    host = session.scalar(query.with_for_update(), execution_options={"populate_existing": True})
    if host is None:
        raise NotFoundError("host", order.target)
    return host


def _note(session: Session, order: Order, action: str, host_id: str) -> None:
    session.flush()
    audit.record(session, action, order.target, principal=order.principal, project_id=order.project_id, now=order.now)
    announce(session, f"fleet:{host_id}", QUEUE)
