"""What a run needs room for: how many devices, of which platform, and on how many hosts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Self

_ONE_HOST_KINDS = frozenset({"central_storage", "one_device"})
"""Strategies whose variables live on one device that every replica reaches directly."""
_ONE_HOST_EXECUTORS = frozenset({"mpmd"})
"""Executors that drive each device from one process."""
OWN_COLLECTIVES = "jax"
"""What a program says that computes with JAX's own collectives, which span hosts. Strategies do not yet."""


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """Room for a gang. Runs of one shape are alike to the scheduler; `run.shape` stores it as text."""

    replicas: int
    devices_per_replica: int
    platform: str
    spread: str
    """As asked, or `one_host` where the strategy cannot span hosts."""

    def __str__(self) -> str:
        return f"{self.replicas}x{self.devices_per_replica} {self.platform} {self.spread}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shape that `str` wrote."""
        counts, platform, spread = text.split(" ")
        replicas, devices_per_replica = counts.split("x")
        return cls(int(replicas), int(devices_per_replica), platform, spread)

    @property
    def devices(self) -> int:
        """Devices of the whole gang."""
        return self.replicas * self.devices_per_replica

    @property
    def is_one_host(self) -> bool:
        """Whether the gang must not be split over hosts."""
        return self.spread == "one_host"

    def of(self, *, replicas: int | None = None, platform: str | None = None) -> Self:
        """The same with another number of replicas or platform."""
        return replace(self, replicas=replicas or self.replicas, platform=platform or self.platform)


def shape_of(strategy: Mapping[str, Any], resources: Mapping[str, Any]) -> Shape:  # Any: JSON of the contracts
    """The shape of a run with that strategy and those resources."""
    spread = "one_host" if tie_to_one_host(strategy) else resources["spread"]
    return Shape(resources["replicas"], devices_per_replica(strategy), resources["platform"], spread)


def devices_per_replica(strategy: Mapping[str, Any]) -> int:  # Any: JSON of a StrategySpec
    """Logical devices of one replica: the volume of the computation shape, 1 for strategies without one."""
    shape = strategy.get("computation_shape")
    return prod(shape) if shape else 1


def tie_to_one_host(strategy: Mapping[str, Any]) -> str:  # Any: JSON of a StrategySpec
    """What of the strategy cannot span hosts, in words; empty where it may be split over several."""
    if strategy["kind"] in _ONE_HOST_KINDS:
        return f"the strategy {strategy['kind']}"
    if strategy.get("executor") in _ONE_HOST_EXECUTORS:
        return f"the executor {strategy['executor']}"
    if strategy.get("collectives") != OWN_COLLECTIVES:
        return f"the strategy {strategy['kind']}, which computes in one process"
    return ""
