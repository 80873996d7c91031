"""What a run needs room for, and how a gang is split over hosts: asked of the devices that each host has.

A gang that resumes from what so many members saved is split over as many hosts again, where that is possible: what
each of them saved is read by one of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Self

from drumline.slices import Blocks

_ONE_HOST_KINDS = frozenset({"central_storage", "one_device"})
"""Strategies whose variables live on one device that every replica reaches directly."""
ONE_HOST_EXECUTORS = frozenset({"mpmd", "pmap"})
"""Executors that drive each device from one process."""
_SAVED, _ONE_SLICE = "saved", "one_slice"
Stores = Mapping[str, str]
"""By host the checkpoint store that it shares with others; a host that is not there has its own."""


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """Room for a gang. Runs of one shape are alike to the scheduler; `run.shape` stores it as text."""

    replicas: int
    devices_per_replica: int
    platform: str
    spread: str
    """As asked, or `one_host` where the strategy cannot span hosts, `one_slice` where its devices form a box."""
    blocks: Blocks | None = None
    """How the devices of each replica lie on a slice; None where that is of no matter."""
    is_saved: bool = False
    """Whether it asks for checkpoints: hosts that it is split over must share the store of them."""

    def __str__(self) -> str:
        blocks, saved = f" {self.blocks}" if self.blocks else "", f" {_SAVED}" * self.is_saved
        return f"{self.replicas}x{self.devices_per_replica} {self.platform} {self.spread}{blocks}{saved}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shape that `str` wrote."""
        counts, platform, spread, *more = text.split(" ")
        replicas, devices_per_replica = counts.split("x")
        lying = next((Blocks.parse(word) for word in more if word != _SAVED), None)
        return cls(int(replicas), int(devices_per_replica), platform, spread, lying, _SAVED in more)

    @property
    def devices(self) -> int:
        """Devices of the whole gang."""
        return self.replicas * self.devices_per_replica

    @property
    def is_one_host(self) -> bool:
        """Whether the gang must not be split over hosts."""
        return self.spread == "one_host"

    @property
    def is_one_slice(self) -> bool:
        """Whether the gang must not be split but over the hosts of one TPU slice."""
        return self.spread == _ONE_SLICE

    def on_one_host(self) -> Self:
        """Room for the same on one host."""
        return replace(self, spread="one_host")

    def by_slice(self) -> Self:
        """Room for the same where hosts are told apart by their slice, as those that may share a gang."""
        return replace(self, spread="pack", is_saved=True) if self.is_one_slice else self

    def of(self, *, replicas: int | None = None, platform: str | None = None) -> Self:
        """The same with another number of replicas or platform."""
        return replace(self, replicas=replicas or self.replicas, platform=platform or self.platform)


@dataclass(frozen=True, slots=True)
class Chips:
    """What a run computes on: so many devices of a kind, and the box of chips that they form where that is known."""

    kind: str
    devices: int
    box: tuple[int, int, int] | None


def shape_of(
    strategy: Mapping[str, Any], resources: Mapping[str, Any], checkpoint: Mapping[str, Any]
) -> Shape:  # Any: JSON of the contracts
    """The shape of a run with that strategy, those resources and that `CheckpointSpec`."""
    platform, blocks = platform_of(strategy, resources), blocks_of(strategy)
    spread = "one_host" if tie_to_one_host(strategy) else resources["spread"]
    spread = _ONE_SLICE if blocks and spread != "one_host" else spread
    is_saved = checkpoint.get("every_steps") is not None and spread != "one_host"
    return Shape(resources["replicas"], devices_per_replica(strategy), platform, spread, blocks, is_saved)


def platform_of(strategy: Mapping[str, Any], resources: Mapping[str, Any]) -> str:  # Any: JSON of the contracts
    """Where a run may go: one of TPUStrategy that leaves it open to TPU devices only, simulated ones among them.

    On others its boxes stand for a slice that is not there: who wants that names the platform.
    """
    platform: str = resources["platform"]
    return "tpu" if platform == "any" and strategy["kind"] == "tpu" else platform


def blocks_of(strategy: Mapping[str, Any]) -> Blocks | None:  # Any: JSON of a StrategySpec
    """How a replica of TPUStrategy lies on a slice; None for other strategies. Raises SliceError for what is none."""
    if strategy["kind"] != "tpu":
        return None
    shape, stride = strategy["computation_shape"], strategy["computation_stride"]
    return Blocks.of(shape, stride, strategy["device_order"], strategy["topology"])


def devices_per_replica(strategy: Mapping[str, Any]) -> int:  # Any: JSON of a StrategySpec
    """Logical devices of one replica: the volume of the computation shape, 1 for strategies without one."""
    shape = strategy.get("computation_shape")
    return prod(shape) if shape else 1


def tie_to_one_host(strategy: Mapping[str, Any]) -> str:  # Any: JSON of a StrategySpec
    """What of the strategy cannot span hosts, in words; empty where it may be split over several."""
    if strategy["kind"] in _ONE_HOST_KINDS:
        return f"the strategy {strategy['kind']}"
    if strategy.get("executor") in ONE_HOST_EXECUTORS:
        return f"the executor {strategy['executor']}"
    return ""


def slices_of(shape: Shape, slices: Mapping[str, str], stores: Stores) -> dict[str, str]:
    """By host the slice that a gang of the shape may be split over; of one that saves, with the store as well.

    A host that is not there is a slice by itself.
    """
    return {
        host: f"{name}/{stores.get(host, host)}" if shape.is_saved else name for host, name in slices.items() if name
    }


@dataclass(frozen=True, slots=True)
class Share:
    """The replicas of a gang on one host."""

    host_id: str
    replicas: int


def fit(devices: Mapping[str, int], shape: Shape, stores: Stores, members: int = 1) -> list[Share] | None:
    """The hosts that take the gang, by rank; None if it does not fit. `devices`: free devices of each host.

    Where no host alone has room, hosts of one store do before others: only there can the gang save. More `members`
    than one: over so many hosts, where that is possible.
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
    rooms = {} if shape.is_one_host else _rooms_of_one_store(rooms, shape, stores)
    if not rooms:
        return None
    hosts = _fewest_hosts(rooms, shape.replicas)
    return (
        _equal_shares(rooms, hosts, shape.replicas) if shape.spread == "balance" else _fill_hosts(rooms, hosts, shape)
    )


def most_replicas(devices: Mapping[str, int], shape: Shape, stores: Stores) -> int:
    """How many replicas of that shape the hosts have room for, however many the shape has."""
    rooms = {host: count // shape.devices_per_replica for host, count in devices.items()}
    if shape.is_one_host:
        return max(rooms.values(), default=0)
    groups = _by_store(rooms, stores) if shape.is_saved else [rooms]
    return max((sum(group.values()) for group in groups), default=0)


def _by_store(rooms: Mapping[str, int], stores: Stores) -> list[dict[str, int]]:
    groups: dict[str, dict[str, int]] = {}
    for host, room in rooms.items():
        groups.setdefault(stores.get(host, host), {})[host] = room
    return list(groups.values())


def _rooms_of_one_store(rooms: dict[str, int], shape: Shape, stores: Stores) -> dict[str, int]:
    """The hosts among which a gang is split: of one store if it has room, as few as will do; else all that may be."""
    enough = [group for group in _by_store(rooms, stores) if sum(group.values()) >= shape.replicas]
    if not enough:
        return {} if shape.is_saved else rooms
    return min(enough, key=lambda group: (len(_fewest_hosts(group, shape.replicas)), sum(group.values()), min(group)))


def _fewest_hosts(rooms: Mapping[str, int], replicas: int) -> list[str]:
    """As few hosts as have room together, the one with most room first."""
    hosts: list[str] = []
    for host in sorted(rooms, key=lambda host: (-rooms[host], host)):
        if replicas <= 0:
            break
        hosts.append(host)
        replicas -= rooms[host]
    return hosts


def _fill_hosts(rooms: Mapping[str, int], hosts: list[str], shape: Shape) -> list[Share]:
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
