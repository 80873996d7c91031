"""Error rows of the behaviour reference: what is called, the type, and a text that names the value and the fix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist

Call = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """One row: its section and words, what to call, what must be raised."""

    name: str
    call: Call
    error: type[Exception]
    text: str

    def check(self) -> None:
        """Calls it. Fails the test where that raises anything else."""
        with pytest.raises(self.error, match=self.text):
            self.call()


def two() -> dist.MirroredStrategy:
    return dist.MirroredStrategy(jax.devices()[:2])


def central() -> dist.CentralStorageStrategy:
    return dist.CentralStorageStrategy(jax.devices()[:2], jax.devices()[0])


def v1() -> dist.v1.MirroredStrategy:
    return dist.v1.MirroredStrategy(jax.devices()[:2])


def per_replica(*values: Any) -> dist.PerReplica:
    return dist.PerReplica.from_components([np.asarray(value) for value in values])


def in_scope(call: Callable[[], Any], strategy: Any = None) -> Any:
    with (strategy or two()).scope():
        return call()


def in_step(call: Callable[[Any], Any]) -> Any:
    """Calls ``call(strategy)`` inside a step of two replicas."""
    strategy = two()
    return strategy.run(lambda: call(strategy))


def variable(strategy: Any, initial: Any = 1.0, **kind: Any) -> Any:
    with strategy.scope():
        return dist.Variable(initial, **kind)


def integer_mean(synchronization: str) -> Any:
    return variable(two(), 1, synchronization=synchronization, aggregation="mean")


def step_id() -> Any:
    context: Any = dist.get_replica_context()
    return context.replica_id_in_sync_group


def saved_context(strategy: Any) -> Any:
    kept: list[Any] = []
    strategy.run(lambda: kept.append(dist.get_replica_context()))
    return kept[0]


def default_context_in_step() -> Any:
    default: Any = dist.get_replica_context()
    return two().run(lambda: default.all_reduce("sum", 1.0))


def other_context() -> Any:
    kept: list[Any] = []

    def step() -> Any:
        context: Any = dist.get_replica_context()
        kept.append(context)
        is_second = int(context.replica_id_in_sync_group) == 1
        return (kept[0] if is_second else context).all_reduce("sum", jnp.float32(1))

    return two().run(step)


def written_by_replicas(strategy: Any, op: str = "assign", **kind: Any) -> Any:
    made = variable(strategy, kind.pop("initial", 1.0), **kind)

    def step() -> None:
        context: Any = dist.get_replica_context()
        getattr(made, op)(jnp.asarray(context.replica_id_in_sync_group + 1, made.dtype))

    strategy.run(step)
    return made


def scattered(op: str, **kind: Any) -> None:
    made = variable(two(), np.ones(3, np.float32), **kind)
    slices = dist.IndexedSlices(np.ones(1, np.float32), np.zeros(1, np.int32))
    made.strategy.run(lambda: getattr(made, op)(slices) and None)


def assigned(value: Any, op: str = "assign", **kind: Any) -> Any:
    return getattr(variable(two(), **kind), op)(value).value


def distributed(dataset: Any, options: Any = None) -> Any:
    return two().distribute_dataset(dataset, options)


def past_the_end(name: str) -> Any:
    iterator = iter(distributed(dist.Dataset.range(2).batch(2)))
    next(iterator)
    return next(iterator) if name == "next" else iterator.get_next()


def read_in_step() -> Any:
    strategy = two()
    iterator = iter(strategy.distribute_dataset(dist.Dataset.range(4).batch(2)))
    return strategy.run(lambda: next(iterator))


def merged(fn: Callable[..., Any]) -> Any:
    return two().run(lambda: dist.merge_call(fn))


def fails_in_merge(_: Any) -> Any:
    raise KeyError("lost")


BATCHES = dist.Dataset.range(8).batch(4)
DESTINATIONS: list[Any] = ["", None, [], 3]
HALVES = ([1.0, 2.0], [3.0])
PER_REPLICA = dist.InputReplicationMode.PER_REPLICA
