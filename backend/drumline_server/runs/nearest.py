"""The run nearest to one that could never start that could: fewer replicas, smaller ones, or another platform."""

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
    smaller = (
        replace(shape, replicas=replicas, devices_per_replica=devices)
        for replicas in (shape.replicas, 1)
        for devices in range(largest, 0, -1)
    )
    return next((each for each in smaller if most_possible(hosts, each).replicas >= each.replicas), None)
