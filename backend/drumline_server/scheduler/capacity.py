"""What the known hosts could ever hold, for judging a submission and for saying why a run waits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import case, func, or_, select
from sqlalchemy.orm import Session

from drumline.contracts.states import DeviceState
from drumline_server.models import Device, Host
from drumline_server.scheduler.gangs import most_replicas
from drumline_server.scheduler.placement import platforms_of
from drumline_server.scheduler.shapes import Shape


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """Devices of one platform on one host, and how many of them are free or quarantined."""

    host_id: str
    host_name: str
    platform: str
    devices: int
    free: int
    quarantined: int
    out_of_service: str | None
    """Why the host takes no runs: `quarantined`, `draining` or `lost`."""


@dataclass(frozen=True, slots=True)
class Possible:
    """The most replicas of a shape that the hosts of one platform could ever hold."""

    platform: str
    replicas: int
    hosts: tuple[HostCapacity, ...]
    """Of that platform, largest first; none where there is no such platform."""

    @property
    def largest(self) -> int:
        """Devices of the largest host."""
        return self.hosts[0].devices if self.hosts else 0

    @property
    def devices(self) -> int:
        """Devices of all hosts together."""
        return sum(host.devices for host in self.hosts)


def capacities(session: Session, project_id: str, platform: str = "any") -> list[HostCapacity]:
    """Every registered host of the project with devices of `platform`, largest first."""
    free = func.sum(case((Device.state == DeviceState.FREE, 1), else_=0))
    quarantined = func.sum(case((Device.state == DeviceState.QUARANTINED, 1), else_=0))
    out_of_service = case(
        (Host.lost_at.is_not(None), "lost"),
        (Host.quarantined_at.is_not(None), "quarantined"),
        (or_(Host.draining.is_(True), Host.drain_requested_at.is_not(None)), "draining"),
    )
    query = (
        select(Host.id, Host.name, Device.platform, func.count(), free, quarantined, out_of_service)
        .join(Host, Host.id == Device.host_id)
        .where(Device.project_id == project_id, Device.present.is_(True))
        .group_by(Host.id, Host.name, Device.platform)
        .order_by(func.count().desc(), Host.name)
    )
    if platform != "any":
        query = query.where(Device.platform == platform)
    return [HostCapacity(*row) for row in session.execute(query)]


def most_possible(hosts: Sequence[HostCapacity], shape: Shape) -> Possible:
    """The platform of the shape that could hold most of it; a gang has devices of one platform."""
    options = [_possible(hosts, shape, platform) for platform in platforms_of(shape)]
    return max(options, key=lambda option: (option.replicas, option.devices))


def _possible(hosts: Sequence[HostCapacity], shape: Shape, platform: str) -> Possible:
    of_platform = tuple(host for host in hosts if host.platform == platform)
    return Possible(platform, most_replicas({host.host_id: host.devices for host in of_platform}, shape), of_platform)


def room(hosts: Sequence[HostCapacity], shape: Shape, devices: Callable[[HostCapacity], int]) -> int:
    """How many replicas of the shape have room, on the platform that has most of it, by what `devices` counts."""
    return max(
        most_replicas({host.host_id: devices(host) for host in hosts if host.platform == platform}, shape)
        for platform in platforms_of(shape)
    )
