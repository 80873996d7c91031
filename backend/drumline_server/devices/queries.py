"""SQL of hosts and devices."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Select, case, func, select, tuple_
from sqlalchemy.orm import Session

from drumline.contracts.states import DeviceState
from drumline_server.models import Device, Hold, Host, Member, Run


class DeviceRow(NamedTuple):
    """A device with its host's name and, where it is held, by what."""

    device: Device
    host_name: str
    run_id: str | None
    replica: int | None
    job_name: str | None
    quarantined_run: str | None
    """The run of the member that is not proven dead."""


class HostCounts(NamedTuple):
    """What a host has: devices that are there, those free, and their platforms."""

    devices: int
    free: int
    platforms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceFilter:
    """Which devices to list."""

    host: str | None = None
    platform: str | None = None
    state: str | None = None


def hosts_after(session: Session, project_id: str, name: str, count: int) -> Sequence[Host]:
    """Hosts that have registered, by name, those after `name`."""
    query = select(Host).where(Host.project_id == project_id, Host.registered_at.is_not(None), Host.name > name)
    return session.scalars(query.order_by(Host.name).limit(count)).all()


def device_counts(session: Session, host_ids: Sequence[str]) -> dict[str, HostCounts]:
    """What each of the hosts has now."""
    free = func.sum(case((Device.state == DeviceState.FREE, 1), else_=0))
    query = (
        select(Device.host_id, Device.platform, func.count(), free)
        .where(Device.host_id.in_(host_ids), Device.present)
        .group_by(Device.host_id, Device.platform)
        .order_by(Device.platform)
    )
    counts: dict[str, HostCounts] = {host_id: HostCounts(0, 0, ()) for host_id in host_ids}
    for host_id, platform, devices, free_devices in session.execute(query):
        before = counts[host_id]
        counts[host_id] = HostCounts(
            before.devices + devices, before.free + int(free_devices), (*before.platforms, platform)
        )
    return counts


def runs_on(session: Session, host_ids: Sequence[str]) -> dict[str, list[str]]:
    """The runs that hold devices of each host."""
    query = (
        select(Device.host_id, Hold.run_id)
        .join(Hold, Hold.device_id == Device.id)
        .where(Device.host_id.in_(host_ids), Hold.released_at.is_(None))
        .distinct()
        .order_by(Device.host_id, Hold.run_id)
    )
    runs: dict[str, list[str]] = defaultdict(list)
    for host_id, run_id in session.execute(query):
        runs[host_id].append(run_id)
    return runs


def devices_after(
    session: Session, project_id: str, wanted: DeviceFilter, after: tuple[int | str, ...] | None, count: int
) -> Sequence[DeviceRow]:
    """Devices that are there, by host name, platform and index, those after that key."""
    key = (Host.name, Device.platform, Device.position)
    query = _rows().where(Device.project_id == project_id, Device.present)
    if wanted.host is not None:
        query = query.where(Device.host_id == wanted.host)
    if wanted.platform is not None:
        query = query.where(Device.platform == wanted.platform)
    if wanted.state is not None:
        query = query.where(Device.state == wanted.state)
    if after is not None:
        query = query.where(tuple_(*key) > after)
    return [DeviceRow(*row) for row in session.execute(query.order_by(*key).limit(count))]


def device_row(session: Session, device_id: str) -> DeviceRow:
    """That device."""
    return DeviceRow(*session.execute(_rows().where(Device.id == device_id)).one())


def _rows() -> Select[*tuple[Any, ...]]:  # Any: the columns of a DeviceRow
    return (
        select(Device, Host.name, Hold.run_id, Hold.replica, Run.job_name, Member.run_id)
        .join(Host, Host.id == Device.host_id)
        .outerjoin(Hold, (Hold.device_id == Device.id) & Hold.released_at.is_(None))
        .outerjoin(Run, Run.id == Hold.run_id)
        .outerjoin(Member, Member.id == Device.quarantine_member)
    )


def device_totals(session: Session, project_id: str) -> tuple[int, int]:
    """How many devices there are, and how many of them are held."""
    held = func.sum(case((Device.state == DeviceState.HELD, 1), else_=0))
    query = select(func.count(), held).where(Device.project_id == project_id, Device.present)
    total, held_devices = session.execute(query).one()
    return total, int(held_devices or 0)
