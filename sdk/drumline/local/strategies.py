"""Devices of this machine for a local run, and the engine's strategy for a StrategySpec."""

from collections.abc import Callable, Sequence
from typing import assert_never

import jax

import drumline.distribute as dist
from drumline.contracts.spec import CentralStorageSpec, MirroredSpec, OneDeviceSpec, Platform, StrategySpec, TpuSpec
from drumline.contracts.supported import find_unsupported
from drumline.errors import DrumlineError, UnsupportedStrategyError

_CROSS_DEVICE_OPS: dict[str, Callable[[], dist.CrossDeviceOps]] = {
    "auto": dist.AllReduceCrossDeviceOps,
    "reduce_to_one": dist.ReductionToOneDevice,
    "hierarchical": dist.HierarchicalCopyAllReduce,
}


def build_strategy(spec: StrategySpec, devices: Sequence[jax.Device]) -> dist.Strategy:
    """The strategy that `spec` describes on `devices`, replica by replica and each one's logical devices in order.

    Raises UnsupportedStrategyError naming the kind where the engine has nothing for it, or not with these options;
    the engine's own errors for a parameter device that does not exist.
    """
    flaw = find_unsupported(spec)
    if flaw is not None:
        raise UnsupportedStrategyError(spec.kind, flaw[1])
    match spec:
        case MirroredSpec():
            return _mirrored(spec, devices)
        case CentralStorageSpec():
            return dist.CentralStorageStrategy(devices, spec.parameter_device, executor=spec.executor)
        case OneDeviceSpec():
            if len(devices) != 1:
                raise UnsupportedStrategyError(spec.kind, f"one_device has 1 replica, not {len(devices)}; use mirrored")
            return dist.OneDeviceStrategy(devices[0])
        case TpuSpec():
            raise AssertionError("refused above")
    assert_never(spec)


def _mirrored(spec: MirroredSpec, devices: Sequence[jax.Device]) -> dist.Strategy:
    operations = _CROSS_DEVICE_OPS[spec.cross_device_ops]()
    if spec.batch == "global":
        return dist.MirroredStrategy(devices, operations, executor=spec.executor)
    return dist.contrib.MirroredStrategy(devices, cross_device_ops=operations)


class TooFewDevicesError(DrumlineError):
    """More replicas are wanted than the platform has devices on this machine."""


def choose_devices(count: int, platform: Platform) -> Sequence[jax.Device]:
    """`count` devices: the accelerators if there are enough or if named, else CPU devices made for this process.

    Must run before anything makes JAX start; raises ContextError if it already has with another number of CPU devices,
    TooFewDevicesError if the platform has too few.
    """
    dist.set_cpu_devices(count)
    if platform == "cpu":
        jax.config.update("jax_platforms", "cpu")
        return jax.devices("cpu")[:count]
    if platform == "any":
        accelerators = jax.devices()
        return accelerators[:count] if len(accelerators) >= count else jax.devices("cpu")[:count]
    present = _devices_of(platform)
    if len(present) < count:
        raise TooFewDevicesError(
            f"{count} replicas need {count} {platform} devices; this machine has {len(present)}: "
            f"use --replicas {len(present)} or --platform cpu"
            if present
            else f"this machine has no {platform} devices; use --platform cpu"
        )
    return present[:count]


def _devices_of(platform: str) -> Sequence[jax.Device]:
    try:
        return jax.devices(platform)
    except RuntimeError:
        return []
