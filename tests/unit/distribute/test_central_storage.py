"""CentralStorageStrategy keeps one copy of a variable at home, and what compute devices still hold never goes stale."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.strategies.central_storage import MAX_KEPT_BYTES

HOMES = {"home computes": 0, "home computes, not first": 1, "home elsewhere": 7}


@pytest.fixture(params=[*HOMES.values()], ids=[*HOMES])
def central(request: pytest.FixtureRequest) -> dist.CentralStorageStrategy:
    return dist.CentralStorageStrategy(jax.devices()[:2], jax.devices()[request.param])


def _made(strategy: dist.Strategy, value: Any = 0.0) -> dist.Variable:
    with strategy.scope():
        return dist.Variable(jnp.asarray(value, jnp.float32), aggregation="mean", name="w")


def _add_one(variable: dist.Variable) -> Callable[[], Any]:
    return lambda: variable.assign_add(np.ones(variable.shape))


def test_a_variable_lies_once_on_its_home_after_every_step(central: dist.CentralStorageStrategy) -> None:
    variable = _made(central)
    step = _add_one(variable)
    for steps in range(1, 4):
        central.run(step)
        (copy,) = variable.values
        assert copy.devices() == {central.parameter_device}
        assert float(copy) == steps


def test_a_write_from_outside_reaches_the_next_step(central: dist.CentralStorageStrategy) -> None:
    variable = _made(central)
    step = _add_one(variable)
    central.run(step)
    variable.assign(10.0)
    central.run(step)
    central.extended.update(variable, lambda copy, delta: copy.assign_add(delta), args=(5.0,))
    central.run(step)
    assert float(variable) == 17


def test_a_ragged_step_between_even_ones_is_not_forgotten(central: dist.CentralStorageStrategy) -> None:
    variable = _made(central)

    def step(rows: jax.Array) -> None:
        variable.assign_add(dist.all_reduce("sum", jnp.sum(rows)))

    for batch in central.distribute_dataset([np.ones(4, np.float32), np.ones(3, np.float32), np.ones(4, np.float32)]):
        central.run(step, args=(batch,))
    assert float(variable) == 11


def test_a_value_given_out_survives_the_next_step(central: dist.CentralStorageStrategy) -> None:
    variable = _made(central, [1, 2])
    step = _add_one(variable)
    central.run(step)
    held = variable.value
    central.run(step)
    central.run(step)
    assert held.tolist() == [2, 3]
    assert variable.value.tolist() == [4, 5]


def test_large_variables_leave_nothing_on_the_compute_devices() -> None:
    strategy = dist.CentralStorageStrategy(jax.devices()[:2], jax.devices()[7])
    variable = _made(strategy, np.zeros(1000))
    assert _left_behind_by(strategy, variable) > 0
    large = _made(strategy, jnp.zeros(MAX_KEPT_BYTES // 4))
    assert _left_behind_by(strategy, variable) == 0
    assert (large.nbytes, variable.value.tolist()) == (MAX_KEPT_BYTES, [2.0] * 1000)


def _left_behind_by(strategy: dist.CentralStorageStrategy, variable: dist.Variable) -> int:
    """How many arrays of the variable's size lie on several devices after a step."""
    known = [*jax.live_arrays()]
    strategy.run(_add_one(variable))
    new = (array for array in jax.live_arrays() if not any(array is one for one in known))
    return sum(array.size == variable.value.size and len(array.devices()) > 1 for array in new)
