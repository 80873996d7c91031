"""A step whose arguments changed is another program; arrays may be changed once they are given."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from support.stale_programs import X, run, shared_strategy

pytestmark = pytest.mark.filterwarnings("ignore::drumline.distribute.errors.RetraceWarning")

SCALE: Any = 1


def by_global(x: Any) -> Any:
    return x * SCALE


# arguments that are part of the program


def test_an_object_argument_that_changed_is_seen(executor: str) -> None:
    config = SimpleNamespace(lr=1.0)

    def step(x: Any, config: Any) -> Any:
        return x * config.lr

    assert run(step, X, config, executor=executor) == 1
    config.lr = 2.0
    assert run(step, X, config, executor=executor) == 2


def test_a_function_argument_whose_globals_changed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(x: Any, fn: Any) -> Any:
        return fn(x)

    assert run(step, X, by_global) == 1
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 2)
    assert run(step, X, by_global) == 2


def test_a_static_argument_that_changed_is_seen() -> None:
    config = {"lr": 1.0}

    def step(x: Any, config: Any) -> Any:
        return x * config["lr"]

    strategy = shared_strategy("auto")
    options = dist.RunOptions(static_argnames=("config",))
    seen = []
    for value in (1.0, 2.0):
        config["lr"] = value
        seen.append(float(strategy.local_results(strategy.run(step, (X, config), options=options))[0]))
    assert seen == [1, 2]


def test_static_arguments_are_told_apart_by_type_and_value() -> None:
    traces = []

    def step(x: Any, n: Any) -> Any:
        traces.append(n)
        return x

    for n in (1, 1.0, True, 1, 1.0, True):
        shared_strategy("auto").run(step, (X, n), options=dist.RunOptions(static_argnames=("n",)))
    assert [type(n) for n in traces] == [int, float, bool]


def test_a_setting_of_jax_makes_another_program() -> None:
    def step(x: Any) -> Any:
        return jax.random.uniform(jax.random.key(0)) * x

    threefry = run(step)
    with jax.default_prng_impl("rbg"):
        rbg = run(step)
    assert [run(step), threefry != rbg] == [threefry, True]


# arrays that the caller changes in place


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("executor", ["spmd", "pmap", "mpmd"])
def test_an_array_argument_may_be_changed_as_soon_as_run_returns(executor: str, replicas: int) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:replicas], executor=executor)
    for _ in range(5):
        array = np.ones(1 << 20, np.float32)
        total, same = strategy.run(lambda x: (jnp.sin(x) * 0 + x, x + 0), args=(array,))
        array[:] = 2
        for part in (*strategy.local_results(total), *strategy.local_results(same)):
            assert float(jnp.max(part)) == 1


@pytest.mark.parametrize("how", ["initial value", "assign", "assign_add"])
def test_an_array_given_to_a_variable_may_be_changed_afterwards(how: str) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    for _ in range(5):
        array = np.ones(1 << 20, np.float32)
        with strategy.scope():
            variable = dist.Variable(array if how == "initial value" else np.zeros_like(array), aggregation="mean")
        if how != "initial value":
            getattr(variable, how)(array)
        array[:] = 2
        assert float(np.max(variable.numpy())) == 1
