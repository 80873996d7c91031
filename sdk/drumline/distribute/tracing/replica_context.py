"""What a step sees of the replica that it runs for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax import lax

from drumline.distribute.contexts import context
from drumline.distribute.contexts.step_trace import StepTrace
from drumline.distribute.errors import ContextError
from drumline.distribute.tracing import collectives
from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.per_replica import REPLICA_AXIS


class ReplicaContext:
    """What a step sees of itself. Valid only inside the step it was made for."""

    def __init__(self, strategy: DeviceGroup, replica: int | None, trace: StepTrace | None) -> None:
        self._strategy = strategy
        self._replica = replica
        self._frame = trace

    @property
    def strategy(self) -> Any:
        """The strategy that runs this step."""
        return self._strategy

    @property
    def num_replicas_in_sync(self) -> int:
        """Replicas that step together."""
        return self._strategy.num_replicas_in_sync

    @property
    def replica_id_in_sync_group(self) -> Any:
        """int32 scalar, 0 to ``num_replicas_in_sync - 1``.

        A tracer where one program serves all replicas. A step whose Python control flow depends on it is traced once
        per replica instead, with the number itself.
        """
        if self._frame is None:
            return np.int32(0)
        self._check("replica_id_in_sync_group")
        return np.int32(self._replica) if self._replica is not None else lax.axis_index(REPLICA_AXIS)

    @property
    def devices(self) -> tuple[jax.Device, ...]:
        """The devices this replica may run on; all of the strategy's where one program serves all replicas."""
        devices = self._strategy.devices
        return devices if self._replica is None else (devices[self._replica],)

    def all_reduce(self, op: Any, value: Any, options: Any = None) -> Any:
        """As :func:`drumline.distribute.all_reduce`."""
        self._check("all_reduce")
        return collectives.all_reduce(op, value, options)

    def all_gather(self, value: Any, axis: int, options: Any = None) -> Any:
        """As :func:`drumline.distribute.all_gather`."""
        self._check("all_gather")
        return collectives.all_gather(value, axis, options)

    def merge_call(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """As :func:`drumline.distribute.merge_call`."""
        self._check("merge_call")
        return collectives.merge_call(fn, args, kwargs)

    def _check(self, what: str) -> None:
        if context.current_replica() is not self:
            raise ContextError(
                f"{what} of a replica context that is not the current one; take dist.get_replica_context() inside "
                "the step, and don't keep it"
            )

    def __repr__(self) -> str:
        replica = "any" if self._replica is None else self._replica
        return f"ReplicaContext(replica {replica} of {self.num_replicas_in_sync})"


def get_replica_context() -> ReplicaContext | None:
    """The context of the replica this code runs for; None in cross-replica context."""
    return cast("ReplicaContext | None", context.current_replica())
