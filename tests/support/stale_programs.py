"""Steps of two replicas, to run again once something that they captured has changed."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import drumline.distribute as dist

X = np.float32(1)


def run(step: Callable[..., Any], *args: Any, executor: str = "auto", **options: Any) -> Any:
    """What replica 0 of two returns."""
    result = shared_strategy(executor).run(step, args=args or (X,), options=dist.RunOptions(**options))
    return np.asarray(shared_strategy(executor).local_results(result)[0]).tolist()


@functools.cache
def shared_strategy(executor: str) -> dist.Strategy:
    """Of two replicas, the same for all tests."""
    return dist.MirroredStrategy(jax.devices()[:2], executor=executor)


def define(source: str, **names: Any) -> dict[str, Any]:
    """A module of its own, from source; ``names`` are its globals."""
    module = types.ModuleType("stranger")
    vars(module).update(names)
    exec(source, vars(module))
    return vars(module)
