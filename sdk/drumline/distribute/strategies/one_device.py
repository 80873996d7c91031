"""Strategies of one replica: OneDeviceStrategy, and the default strategy outside every scope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax

from drumline.distribute.base.runtime import DeviceLike, resolve_device
from drumline.distribute.contexts import context
from drumline.distribute.errors import InvalidValueError
from drumline.distribute.running.run_options import RunOptions
from drumline.distribute.strategies.strategy import Strategy
from drumline.distribute.tracing.replica_context import ReplicaContext


class OneDeviceStrategy(Strategy):
    """Everything on one device; values are never wrapped."""

    wraps_values: ClassVar[bool] = False

    def __init__(self, device: DeviceLike, executor: str = "auto") -> None:
        super().__init__((resolve_device(device),), executor)


class DefaultStrategy(Strategy):
    """What ``get_strategy()`` gives outside scopes: runs a function as it is, on JAX's default device."""

    places_variables: ClassVar[bool] = False
    wraps_values: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__((jax.local_devices()[0],))
        self.default_replica_context = ReplicaContext(self, 0, None)

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        options: RunOptions | None = None,
    ) -> Any:
        """Calls ``fn``; nothing is traced or wrapped."""
        if not isinstance(args, (tuple, list)):
            raise InvalidValueError(f"args must be a tuple or a list, not {type(args).__name__}; write args=(batch,)")
        with context.enter(context.ContextEntry(self, self.default_replica_context)):
            return fn(*args, **(kwargs or {}))


context.provide_default(DefaultStrategy)
