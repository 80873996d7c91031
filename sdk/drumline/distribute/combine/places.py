"""The places outside of a step where replicas' values come together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drumline.distribute.combine import reduction
from drumline.distribute.enums import ReduceOp
from drumline.distribute.values import PerReplica

if TYPE_CHECKING:
    from drumline.distribute.strategy import Strategy


@dataclass(frozen=True, slots=True)
class OutsideSteps:
    """The devices of a strategy. Results lie on all of them."""

    strategy: Strategy

    @property
    def num_replicas(self) -> int:
        """The strategy's."""
        return self.strategy.num_replicas_in_sync

    def add(self, op: ReduceOp, value: PerReplica, axis: Any) -> Any:
        """Sum or mean of a per-replica value."""
        if value.stacked is not None:
            return self.strategy.reduce_stacked(op, value.stacked, axis)
        home = self.strategy.devices[0]
        return self.strategy.spread(reduction.reduce_components(op, value.values, axis, home))

    def concatenate(self, value: PerReplica, axis: int) -> Any:
        """The components in replica order."""
        return self.strategy.spread(reduction.concatenate(value.values, axis, self.strategy.devices[0]))
