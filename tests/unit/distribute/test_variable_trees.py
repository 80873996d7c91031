"""Nests of variables hold what an optimizer remembers, its integers included."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import drumline.distribute as dist
from drumline.distribute.checkpoint import Checkpoints

OPTIMIZER = optax.adam(0.1)
ROWS = np.arange(24, dtype=np.float32).reshape(8, 3)


def gradient(weights: jax.Array, x: jax.Array) -> Any:
    return jax.grad(lambda w: jnp.mean((x @ w - 1) ** 2))(weights)


@pytest.mark.parametrize("replicas", [1, 4])
def test_an_optimizer_in_variables_is_the_same_as_one_handed_through(replicas: int) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:replicas])
    (x,) = strategy.distribute_dataset([ROWS])
    state: Any = jnp.zeros(3), OPTIMIZER.init(jnp.zeros(3))
    with strategy.scope():
        kept = dist.variables(state)

    def changed(state: Any, x: jax.Array) -> Any:
        weights, memory = state
        updates, memory = OPTIMIZER.update(dist.all_reduce("mean", gradient(weights, x)), memory)
        return optax.apply_updates(weights, updates), memory

    def kept_step(x: jax.Array) -> None:
        kept.assign(changed(kept.values, x))

    for _ in range(3):
        state = strategy.run(lambda state, x: dist.mirrored(changed(state, x)), args=(state, x))
        strategy.run(kept_step, args=(x,))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), kept.values, state)
    count = kept.variables[1][0].count
    assert (int(count.value), count.dtype, count.aggregation.name) == (3, jnp.int32, "ONLY_FIRST_REPLICA")


def test_several_steps_by_one_call_hand_it_on(two: dist.MirroredStrategy) -> None:
    with two.scope():
        kept = dist.variables({"total": 0.0, "steps": 0})

    def step(x: jax.Array) -> None:
        values = kept.values
        kept.assign({"total": values["total"] + dist.all_reduce("sum", x[0]), "steps": values["steps"] + 1})

    two.run_steps(step, iter(two.distribute_dataset(dist.Dataset.range(8).batch(2).map(np.float32))), 4)
    assert jax.tree.map(float, kept.values) == {"total": 28, "steps": 4}


def test_what_is_no_array_stays_what_it_is(two: dist.MirroredStrategy) -> None:
    with two.scope():
        kept = dist.variables({"name": "adam", "none": None, "w": np.ones(2)})
    assert kept.values["name"] == "adam"
    assert kept.values["none"] is None
    assert kept.assign({"name": "adam", "none": None, "w": np.zeros(2)}).values["w"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("value", "said"), [([1.0, 2.0], "structures differ"), ({"a": np.ones(3), "b": 1}, "shapes must be equal")]
)
def test_another_nest_is_refused_whole(value: Any, said: str, two: dist.MirroredStrategy) -> None:
    with two.scope():
        kept = dist.variables({"a": np.zeros(2), "b": 0})
    with pytest.raises(ValueError, match=said):
        kept.assign(value)
    assert jax.tree.map(np.sum, kept.values) == {"a": 0, "b": 0}


@pytest.mark.parametrize("part", [lambda kept: kept, lambda kept: kept.variables], ids=["itself", "its variables"])
def test_checkpoints_take_it(part: Callable[[Any], Any], two: dist.MirroredStrategy, tmp_path: Path) -> None:
    with two.scope():
        kept = dist.variables(OPTIMIZER.init(jnp.arange(3.0)))
    kept.variables[0].count.assign(7)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"memory": part(kept)})
    kept.variables[0].count.assign(0)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.restore({"memory": part(kept)})
    assert int(kept.values[0].count) == 7


def test_it_is_a_nest_to_jax(two: dist.MirroredStrategy) -> None:
    with two.scope():
        kept = dist.variables({"a": np.arange(2.0), "name": "adam"})

    assert jax.tree.leaves(kept) == [kept.variables["a"], "adam"]
    assert jax.tree.map(lambda leaf: leaf, kept).values["a"].tolist() == [0, 1]
    doubled = two.run(lambda held: held.values["a"] * 2, args=(kept,))
    assert two.local_results(doubled)[1].tolist() == [0, 2]


def test_a_step_that_is_defined_anew_and_reads_it_is_traced_once(two: dist.MirroredStrategy) -> None:
    with two.scope():
        kept, other = dist.variables({"a": np.ones(2)}), dist.variables({"a": np.zeros(2)})
    traces = []

    def step_of(tree: Any) -> Any:
        def step() -> Any:
            traces.append(tree)
            tree.assign({"a": tree.values["a"] + 1})
            return tree.values["a"]

        return step

    for _ in range(3):
        two.run(step_of(kept))
    assert len(traces) == 1
    assert kept.values["a"].tolist() == [4, 4]
    two.run(step_of(other))
    assert [len(traces), other.values["a"].tolist(), kept.values["a"].tolist()] == [2, [1, 1], [4, 4]]
