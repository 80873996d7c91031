"""How a gang is split over hosts: asked of the devices that each host has.

A replica never spans hosts. One host alone is preferred whatever the spread, as its replicas meet without a network.

- `pack`      the fullest host that has room; else as few hosts as will do, filled one after the other
- `balance`   the emptiest host that has room; else as few hosts as will do, with as equal shares as there is room for
- `one_host`  the fullest host that has room, or none

A gang that goes on from what so many members saved is split over as many hosts again, where that is possible: what
each of them had alone fits no other number.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from drumline_server.base.shapes import Shape


@dataclass(frozen=True, slots=True)
class Share:
    """The replicas of a gang on one host."""

    host_id: str
    replicas: int


def fit(devices: Mapping[str, int], shape: Shape, members: int = 1) -> list[Share] | None:
    """The hosts that take the gang, by rank; None if it does not fit. `devices`: free devices of each host.

    More `members` than one: over so many hosts, where that is possible.
    """
    rooms = {
        host: count // shape.devices_per_replica
        for host, count in devices.items()
        if count >= shape.devices_per_replica
    }
    if sum(rooms.values()) < shape.replicas:
        return None
    if 1 < members <= shape.replicas and not shape.is_one_host:
        largest = sorted(rooms, key=lambda host: (-rooms[host], host))[:members]
        if len(largest) == members and sum(rooms[host] for host in largest) >= shape.replicas:
            return _equal_shares(rooms, largest, shape.replicas)
    whole = [host for host, room in rooms.items() if room >= shape.replicas]
    if whole:
        emptiest_first = shape.spread == "balance"
        best = min(whole, key=lambda host: (-devices[host] if emptiest_first else devices[host], host))
        return [Share(best, shape.replicas)]
    if shape.is_one_host:
        return None
    hosts = _fewest_hosts(rooms, shape.replicas)
    return _equal_shares(rooms, hosts, shape.replicas) if shape.spread == "balance" else _filled(rooms, hosts, shape)


def most_replicas(devices: Mapping[str, int], shape: Shape) -> int:
    """How many replicas of that shape the hosts have room for, however many the shape has."""
    rooms = [count // shape.devices_per_replica for count in devices.values()]
    return max(rooms, default=0) if shape.is_one_host else sum(rooms)


def _fewest_hosts(rooms: Mapping[str, int], replicas: int) -> list[str]:
    """As few hosts as have room together, the one with most room first."""
    hosts: list[str] = []
    for host in sorted(rooms, key=lambda host: (-rooms[host], host)):
        if replicas <= 0:
            break
        hosts.append(host)
        replicas -= rooms[host]
    return hosts


def _filled(rooms: Mapping[str, int], hosts: list[str], shape: Shape) -> list[Share]:
    """All hosts full but the last, which is the smallest that has room for the rest."""
    rest = shape.replicas - sum(rooms[host] for host in hosts[:-1])
    last = min(
        (host for host, room in rooms.items() if room >= rest and host not in hosts[:-1]),
        key=lambda host: (rooms[host], host),
    )
    return [*(Share(host, rooms[host]) for host in hosts[:-1]), Share(last, rest)]


def _equal_shares(rooms: Mapping[str, int], hosts: list[str], replicas: int) -> list[Share]:
    """Equal shares, but no more than there is room for: those with little room first, so that the rest levels out."""
    shares: list[Share] = []
    for index, host in enumerate(reversed(hosts)):
        share = min(rooms[host], replicas // (len(hosts) - index))
        shares.append(Share(host, share))
        replicas -= share
    return shares[::-1]
