"""From a StrategySpec to the engine's strategy on given devices. The worker's runner uses it too."""

from collections.abc import Callable, Sequence
from typing import assert_never

import jax

import drumline.distribute as dist
from drumline.contracts.spec import CentralStorageSpec, MirroredSpec, OneDeviceSpec, StrategySpec, TpuSpec
from drumline.contracts.supported import unsupported
from drumline.errors import UnsupportedStrategyError

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
    flaw = unsupported(spec)
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
