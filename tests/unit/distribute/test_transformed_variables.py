"""Variables in JAX's transformations: they see the current value, and write where that can take effect."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import drumline.distribute as dist
from drumline.distribute.errors import VariableScopeError

pytestmark = pytest.mark.x64(often=False)


def make(strategy: dist.Strategy, initial: Any = 10.0, **kwargs: Any) -> dist.Variable:
    with strategy.scope():
        return dist.Variable(initial, **kwargs)


def test_writes_in_cond_scan_and_nested_jit_take_effect(two: dist.MirroredStrategy) -> None:
    variable = make(two, 0.0, aggregation="mean")

    def step(x: Any) -> Any:
        @jax.jit
        def add(amount: Any) -> None:
            variable.assign_add(amount)

        lax.cond(jnp.asarray(True), lambda: add(1.0), lambda: None)
        lax.scan(lambda carry, _: (carry, add(10.0)), 0, None, length=3)
        return variable.value * x

    result = two.run(step, args=(dist.PerReplica.from_components([1.0, 2.0]),))
    assert [float(value) for value in result.values] == [31, 62]
    assert float(variable) == 31


def test_gradients_flow_through_reads_and_not_into_writes(two: dist.MirroredStrategy) -> None:
    weight, moving = make(two, 3.0, aggregation="mean"), make(two, 0.0, aggregation="mean")

    def step(x: Any) -> Any:
        def loss(w: Any) -> Any:
            moving.assign(w * x)
            return w * x + moving.value

        return jax.grad(loss)(weight.value)

    gradients = two.run(step, args=(dist.PerReplica.from_components([1.0, 3.0]),))
    assert [float(value) for value in gradients.values] == [1, 3]
    assert float(moving) == 6


@jax.jit
def _scaled_by(variable_box: Any) -> Any:
    return variable_box * _read_global()


_global: dict[str, dist.Variable] = {}


def _read_global() -> Any:
    return _global["v"].value


def test_a_module_level_jit_that_reads_a_variable_sees_the_current_value(two: dist.MirroredStrategy) -> None:
    _global["v"] = make(two, 1.0, aggregation="mean")

    def step(x: Any) -> Any:
        _global["v"].assign_add(1.0)
        return _scaled_by(x)

    x = dist.PerReplica.from_components([1.0, 2.0])
    assert [float(v) for v in two.run(step, args=(x,)).values] == [2, 4]
    assert [float(v) for v in two.run(step, args=(x,)).values] == [3, 6]
    wide = dist.PerReplica.from_components([np.ones(2, np.float32)] * 2)
    assert two.run(step, args=(wide,)).values[0].tolist() == [4, 4]


def test_reading_in_a_jitted_function_outside_run_is_refused(two: dist.MirroredStrategy) -> None:
    variable = make(two, aggregation="mean")
    with pytest.raises(VariableScopeError, match=r"pass v.value as an argument or call through strategy.run"):
        jax.jit(lambda: variable.value + 1)()
    assert jax.grad(lambda a: a * variable.value)(2.0) == 10
    assert jax.jit(lambda value: value + 1)(variable.value) == 11


def test_writing_inside_checkpoint_is_refused(two: dist.MirroredStrategy) -> None:
    variable = make(two, aggregation="mean")

    def step(x: Any) -> Any:
        def loss(x: Any) -> Any:
            variable.assign_add(1.0)
            return jnp.sin(x)

        return jax.grad(jax.checkpoint(loss))(x)

    with pytest.raises(VariableScopeError, match=r"inside jax.checkpoint at .*test_transformed_variables.py"):
        two.run(step, args=(dist.PerReplica.from_components([1.0, 2.0]),))
    assert float(variable) == 10


def test_writing_inside_vmap_is_refused(two: dist.MirroredStrategy) -> None:
    variable = make(two, aggregation="mean")
    with pytest.raises(VariableScopeError, match=r"inside vmap"):
        two.run(lambda: jax.vmap(lambda a: (variable.assign(a), a)[1])(jnp.ones(3)))
