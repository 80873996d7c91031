"""MirroredStrategy: one replica per device, of this process or of all, and a copy of every variable on each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from drumline.distribute.base.enums import VariableAggregation, VariableSynchronization
from drumline.distribute.base.runtime import DeviceLike, all_devices, resolve_devices
from drumline.distribute.combine.cross_device_ops import CrossDeviceOps
from drumline.distribute.errors import InvalidValueError
from drumline.distribute.strategies.strategy import Strategy
from drumline.distribute.variables.distributed import DivergingVariable, MirroredVariable, SyncOnReadVariable
from drumline.distribute.variables.variable import Variable


class MirroredStrategy(Strategy):
    """Synchronous training on the devices of one machine, or of all processes that met by ``dist.initialize``.

    ``devices``: jax devices, also of other processes, or names of this one's. None or an empty list takes all
    accelerators of all processes, else all their CPU devices.
    ``cross_device_ops``: how reductions outside a step and those of ragged steps travel between devices.
    """

    spans_processes: ClassVar[bool] = True

    def __init__(
        self,
        devices: Sequence[DeviceLike] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
        executor: str = "auto",
    ) -> None:
        resolved = resolve_devices(devices) if devices else all_devices()
        if len({device.platform for device in resolved}) > 1:
            raise InvalidValueError(
                f"a mirrored variable can't lie on {', '.join(map(str, resolved))}: their platforms differ; use "
                "CentralStorageStrategy"
            )
        super().__init__(resolved, executor, cross_device_ops)

    def variable_class(
        self, synchronization: VariableSynchronization, aggregation: VariableAggregation
    ) -> type[Variable]:
        return mirrored_variable_class(synchronization, aggregation)


def mirrored_variable_class(
    synchronization: VariableSynchronization, aggregation: VariableAggregation
) -> type[Variable]:
    """The class of a variable that every replica has a copy of."""
    if synchronization is VariableSynchronization.NONE:
        raise InvalidValueError(
            "synchronization='none' has no meaning for mirrored variables; use 'on_write' or 'on_read'"
        )
    if synchronization is VariableSynchronization.ON_READ:
        return SyncOnReadVariable
    return DivergingVariable if aggregation is VariableAggregation.NONE else MirroredVariable
