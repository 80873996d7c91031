"""Inside a step replicas' values come together by collectives, in one replica's program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax

from drumline.distribute.base.enums import ReduceOp
from drumline.distribute.combine import reduction
from drumline.distribute.combine.component_gather import gather_components
from drumline.distribute.contexts.step_trace import StepTrace
from drumline.distribute.values.per_replica import REPLICA_AXIS

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
