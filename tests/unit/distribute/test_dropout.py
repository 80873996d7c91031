"""Dropout per replica: each replica drops its own units, and the state that comes out is the same on all."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import drumline.distribute as dist

ROWS = np.ones((8, 64), np.float32)


def masks(strategy: dist.Strategy, dropped: Any) -> list[tuple[bool, ...]]:
    return [tuple(np.asarray(part[0] == 0).tolist()) for part in strategy.local_results(dropped)]


def test_nnx_drops_other_units_on_each_replica_and_in_each_step(four: dist.MirroredStrategy) -> None:
    graph, state = nnx.split(nnx.Dropout(0.5, rngs=nnx.Rngs(0)))

    def step(state: Any, number: Any, x: jax.Array) -> Any:
        model = nnx.merge(graph, state)
        key = jax.random.fold_in(dist.replica_key(jax.random.key(0)), number)
        return model(x, rngs=nnx.Rngs(dropout=key))

    (x,) = four.distribute_dataset([ROWS])
    first, second = (masks(four, four.run(step, args=(state, number, x))) for number in (0, 1))
    assert len({*first, *second}) == 8


def test_linen_drops_other_units_on_each_replica_and_repeats_them_for_the_same_key(four: dist.MirroredStrategy) -> None:
    model = nn.Dropout(0.5, deterministic=False)

    def step(key: jax.Array, x: jax.Array) -> Any:
        return model.apply({}, x, rngs={"dropout": dist.replica_key(key)})

    (x,) = four.distribute_dataset([ROWS])
    first, again, other = (masks(four, four.run(step, args=(jax.random.key(n), x))) for n in (0, 0, 1))
    assert first == again
    assert len({*first, *other}) == 8


def test_without_a_replicas_own_key_all_drop_the_same(four: dist.MirroredStrategy) -> None:
    (x,) = four.distribute_dataset([ROWS])
    dropped = four.run(
        lambda key, x: nn.Dropout(0.5, deterministic=False).apply({}, x, rngs={"dropout": key}),
        args=(jax.random.key(0), x),
    )
    assert len(set(masks(four, dropped))) == 1
    assert float(jnp.sum(four.gather(dropped, axis=0))) > 0
