"""CentralStorageStrategy: one replica per compute device, one copy of every variable on the parameter device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding

from drumline.distribute.base.enums import VariableAggregation, VariableSynchronization
from drumline.distribute.base.runtime import DeviceLike, resolve_device, resolve_devices
from drumline.distribute.combine.cross_device_ops import ReductionToOneDevice
from drumline.distribute.errors import InvalidValueError
from drumline.distribute.strategies.experimental_names import NumpyDatasets
from drumline.distribute.strategies.strategy import Strategy
from drumline.distribute.values.per_replica import Mirrored
from drumline.distribute.variables.distributed import AggregatingVariable
from drumline.distribute.variables.variable import Variable

#: Compute devices keep what a step left on them for the next one, if all variables together need no more than this
#: on each device: sending small variables again costs more time than a step, keeping large ones costs memory.
MAX_KEPT_BYTES = 256 * 2**20


class CentralStorageStrategy(NumpyDatasets, Strategy):
    """Computes on ``compute_devices`` (default: all local accelerators, else one CPU device) and keeps each variable
    once, on ``parameter_device`` (default: the only compute device, else the host CPU).

    Compute devices may be of different platforms; they then run one program each.
    """

    keeps_copies = True
    pads_batches = False

    def __init__(
        self,
        compute_devices: Sequence[DeviceLike] | None = None,
        parameter_device: DeviceLike | None = None,
        executor: str = "auto",
    ) -> None:
        devices = resolve_devices(compute_devices) if compute_devices else _accelerators_or_cpu()
        if len({device.platform for device in devices}) > 1:
            if executor in ("spmd", "pmap"):
                raise InvalidValueError(
                    f"executor={executor!r} needs devices of one platform, got {', '.join(map(str, devices))}"
                )
            executor = "mpmd"
        super().__init__(devices, executor, ReductionToOneDevice())
        if parameter_device is not None:
            self._parameter_device = resolve_device(parameter_device)
        else:
            self._parameter_device = devices[0] if len(devices) == 1 else jax.local_devices(backend="cpu")[0]

    @property
    def parameter_device(self) -> jax.Device:
        return self._parameter_device

    @property
    def is_mixed(self) -> bool:
        """True when compute devices are of several platforms; no array can then lie on all of them."""
        return len({device.platform for device in self._devices}) > 1

    @property
    def batch_sharding(self) -> NamedSharding:
        """Splits axis 0 over the compute devices; InvalidValueError where they are of several platforms."""
        if self.is_mixed:
            raise InvalidValueError(f"no array can lie on {', '.join(map(str, self._devices))}: their platforms differ")
        return super().batch_sharding

    def spread(self, array: Any) -> Any:
        return array if self.is_mixed else super().spread(array)

    def mirror(self, copies: Sequence[jax.Array]) -> Any:
        return Mirrored.from_components(copies) if self.is_mixed else super().mirror(copies)

    @property
    def variable_devices(self) -> tuple[jax.Device, ...]:
        return (self._parameter_device,)

    def register_variable(self, variable: Variable) -> None:
        super().register_variable(variable)
        self.keeps_copies = sum(one.nbytes for one in self.own_variables()) <= MAX_KEPT_BYTES

    def variable_class(
        self, synchronization: VariableSynchronization, aggregation: VariableAggregation
    ) -> type[Variable]:
        return AggregatingVariable if self.num_replicas_in_sync > 1 else Variable

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, parameters on {self._parameter_device})"


def _accelerators_or_cpu() -> tuple[Any, ...]:
    accelerators = tuple(device for device in jax.local_devices() if device.platform != "cpu")
    return accelerators or (jax.local_devices(backend="cpu")[0],)
