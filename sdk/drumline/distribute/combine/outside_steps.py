"""Outside steps the values of all replicas come together on the devices of a strategy."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import jax

from drumline.distribute.base.enums import ReduceOp
from drumline.distribute.combine import reduction
from drumline.distribute.combine.cross_device_ops import ProgramCombiner, require_stacked
from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.per_replica import PerReplica


@dataclass(frozen=True, slots=True)
class HostCombiner:
    """Combines on the devices of a strategy. Results lie on all of them."""

    group: DeviceGroup

    @property
    def num_replicas(self) -> int:
        """The strategy's."""
        return self.group.num_replicas_in_sync

    def add(self, op: ReduceOp, value: PerReplica, axis: Any) -> Any:
        """Sum or mean of a per-replica value."""
        if value.stacked is not None:
            return reduce_stacked(self.group, op, value.stacked, axis)
        values, home = self._components(value)
        return self.group.spread(reduction.reduce_components(op, values, axis, home))

    def concatenate(self, value: PerReplica, axis: int) -> Any:
        """The components in replica order, on every device."""
        if self.group.has_foreign_devices and value.filled is None:
            return self._concatenate_stacked(value, axis)
        values, home = self._components(value)
        return self.group.spread(reduction.concatenate(values, axis, home))

    def _components(self, value: PerReplica) -> tuple[tuple[Any, ...], jax.Device]:
        """Those of all replicas, and the device of this process where they come together."""
        if self.group.has_foreign_devices and value.filled is None:
            require_stacked(value)  # refused
        with self.group.lock:
            return self.group.components_everywhere(value), self.group.local_devices[0]

    def _concatenate_stacked(self, value: PerReplica, axis: int) -> Any:
        with self.group.lock:
            sent_at = time.monotonic_ns()
            result = ProgramCombiner(self.num_replicas).concatenate(value, axis)
            _admit(self.group, result, sent_at)
        return result


def reduce_stacked(group: DeviceGroup, op: ReduceOp, array: jax.Array, axis: Any = None) -> jax.Array:
    """Reduces [replicas, *shape] on the devices that hold it."""
    with group.lock:
        sent_at = time.monotonic_ns()
        result = reduction.reduce_stacked(op, array, axis)
        _admit(group, result, sent_at)
    return result


def _admit(group: DeviceGroup, result: Any, sent_at: int) -> None:
    if group.on_sent is not None:
        group.on_sent(result, sent_at, None, False)
    group.window.admit(result)
