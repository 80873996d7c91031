"""The strategy that a case names, made through the public constructors."""

from __future__ import annotations

from typing import Any

import drumline.distribute as dist
from conformance.loader import Case


def device_names(count: int) -> list[str]:
    """The first ``count`` CPU devices."""
    return [f"CPU:{index}" for index in range(count)]


def make_strategy(kind: str, replicas: int) -> Any:
    """A new strategy; None for kinds that involve none."""
    devices = device_names(replicas)
    if kind == "mirrored":
        return dist.MirroredStrategy(devices)
    if kind == "mirrored_reduction_to_one":
        return dist.MirroredStrategy(devices, cross_device_ops=dist.ReductionToOneDevice())
    if kind == "central_storage":
        return dist.CentralStorageStrategy(compute_devices=devices, parameter_device="CPU:0")
    if kind == "one_device":
        return dist.OneDeviceStrategy("CPU:0")
    if kind == "default":
        return dist.get_strategy()
    if kind == "mirrored_v1":
        return dist.v1.MirroredStrategy(devices)
    if kind == "contrib_mirrored":
        return dist.contrib.MirroredStrategy(devices)
    if kind in ("pure", "multi_worker_simulated"):
        return None
    raise ValueError(f"unknown strategy kind {kind!r}")


def strategy_of(case: Case) -> Any:
    """A new strategy for the case."""
    return make_strategy(case.kind, case.num_replicas)
