"""Where the values of all replicas come together: on a strategy's devices, or by collectives in a program."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from drumline.distribute.base.enums import ReduceOp
from drumline.distribute.combine import reduction
from drumline.distribute.combine.cross_device_ops import ProgramCombiner, require_stacked
from drumline.distribute.combine.primitives import gather_components
from drumline.distribute.contexts.step_trace import StepTrace
from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.per_replica import REPLICA_AXIS, PerReplica


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


Shapes = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class InStepCombiner:
    """The step being traced; values are this replica's own. Outside every strategy there is one replica, no trace."""

    trace: StepTrace | None

    @property
    def num_replicas(self) -> int:
        """The strategy's."""
        return 1 if self.trace is None else self.trace.num_replicas

    def add(self, op: ReduceOp, value: Any, axis: Any, shapes: Shapes | None = None) -> Any:
        """Sum or mean of the replicas' arrays. ``shapes``: all replicas', where they are known to differ."""
        reduction.check_reducible(op, value.dtype)
        axes = reduction.normalize_axis(axis, value.ndim)
        total = lax.psum(reduction.sum_over(value, axes), REPLICA_AXIS)
        if op is not ReduceOp.MEAN:
            return total
        return reduction.divide(
            total, sum(reduction.counts_of_shapes(shapes or [value.shape] * self.num_replicas, axes))
        )

    def concatenate(self, value: Any, axis: int, shapes: Shapes | None = None) -> Any:
        """The replicas' arrays along ``axis``. Where each replica has its own program they compare their shapes."""
        trace, array = self.trace, jnp.asarray(value)
        if trace is None or trace.exchange is None or trace.replica is None:
            reduction.check_concatenable([array.shape], axis)
            if self.num_replicas == 1:
                return array
            return lax.all_gather(array, REPLICA_AXIS, axis=axis % array.ndim, tiled=True)
        shapes = shapes or trace.exchange("all_gather", array.shape)
        reduction.check_concatenable(shapes, axis)
        return jnp.concatenate(gather_components(array, shapes, trace.replica), axis)
