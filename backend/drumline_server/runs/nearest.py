"""The run nearest to one that could never start that could: fewer replicas, smaller ones, or another platform."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

from drumline_server.scheduler.capacity import HostCapacity, most_possible
from drumline_server.scheduler.shapes import Shape


def nearest_possible(shape: Shape, hosts_with: Callable[[str], Sequence[HostCapacity]]) -> Shape | None:
    """What the fleet could hold, on the platform of the shape if it has devices of it; None for a fleet of none."""
    hosts = hosts_with(shape.platform)
    if hosts:
        return _on(hosts, shape)
    elsewhere = hosts_with("any")
    found = _on(elsewhere, shape.of(platform="any"))
    return found and found.of(platform=most_possible(elsewhere, found).platform)


def _on(hosts: Sequence[HostCapacity], shape: Shape) -> Shape | None:
    """Fewer replicas; where not even one has room, as many with fewer devices each, or one with as many as a host."""
    possible = most_possible(hosts, shape)
    if possible.replicas:
        return shape.of(replicas=min(shape.replicas, possible.replicas))
    largest = max((host.devices for host in hosts), default=0)
    for replicas in (shape.replicas, 1):
        devices = _most_devices(hosts, shape, replicas, largest)
        if devices:
            return replace(shape, replicas=replicas, devices_per_replica=devices)
    return None


def _most_devices(hosts: Sequence[HostCapacity], shape: Shape, replicas: int, largest: int) -> int:
    """With how many devices each, of at most `largest`, there is room for so many replicas; 0 where there never is.

    Room only shrinks as replicas grow, so that a dozen looks at the hosts are enough, however many devices they have.
    """

    def lacks_room(devices: int) -> bool:
        return most_possible(hosts, replace(shape, devices_per_replica=devices)).replicas < replicas

    return bisect_left(range(1, largest + 1), True, key=lacks_room)
