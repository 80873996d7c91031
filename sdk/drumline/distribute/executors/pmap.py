"""The SPMD step through ``jax.pmap``: the same program and results, kept for comparison (pmap costs more per step)."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from drumline.distribute.base.runtime import put
from drumline.distribute.executors.spmd import SpmdStep
from drumline.distribute.values.per_replica import REPLICA_AXIS


class PmapStep(SpmdStep):
    """A step compiled by ``jax.pmap``."""

    name = "pmap"
    _can_give = False

    def _compile(self) -> Any:
        def axis(is_stacked: bool) -> int | None:
            return 0 if is_stacked else None

        out_axes = [axis(not bare) for bare in self._out_is_mirrored] + [0] * self._needs_token
        in_axes: tuple[Any, ...] = (
            [*map(axis, self._donated_stacked)],
            [*map(axis, self._kept_stacked)],
            [],
            self._leaf_axes(),
            None,
        )
        group = self._group
        # pmap wants an argument with a mapped axis; a step may have none.
        replicas = put(np.zeros(group.num_replicas_in_sync, np.int8), group.batch_sharding)
        mapped = jax.pmap(
            lambda _, donated, kept, _given, *args: self._replica_view(donated, kept, *args),
            axis_name=REPLICA_AXIS,
            in_axes=(0, *in_axes),
            out_axes=(out_axes, [*map(axis, self._new_stacked)]),
            devices=list(group.devices),
            donate_argnums=(1,) if self._donate else (),
        )

        def reshard(values: list[Any], stacked: list[bool]) -> list[Any]:
            """Gives pmap's results the shardings that every other part of the engine works with."""
            return [
                put(value, group.batch_sharding if is_stacked else group.replicated_sharding)
                for value, is_stacked in zip(values, stacked, strict=True)
            ]

        def call(*args: Any) -> Any:
            outputs, new = mapped(replicas, *args)
            return reshard(outputs, [axis == 0 for axis in out_axes]), reshard(new, self._new_stacked)

        return call

    def _leaf_axes(self) -> list[int | None]:
        return [0 if is_stacked else None for is_stacked in self._leaf_specs(bool)]
