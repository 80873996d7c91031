"""What a strategy does is refused inside jit, grad, loops ... before anything is touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import drumline.distribute as dist
from drumline.distribute.errors import ContextError, VariableScopeError

X = jnp.float32(1)

TRACED: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "jit": lambda call: jax.jit(lambda x: (call(), x)[1])(X),
    "jit without arguments": lambda call: jax.jit(lambda: (call(), jnp.zeros(()))[1])(),
    "grad": lambda call: jax.grad(lambda x: (call(), x)[1])(X),
    "vmap": lambda call: jax.vmap(lambda x: (call(), x)[1])(jnp.ones(2)),
    "scan": lambda call: lax.scan(lambda c, _: ((call(), c)[1], None), X, length=2),
    "fori_loop": lambda call: lax.fori_loop(0, 2, lambda i, c: (call(), c)[1], X),
    "while_loop": lambda call: lax.while_loop(lambda c: c < 2, lambda c: (call(), c + 1)[1], X),
    "cond": lambda call: lax.cond(X > 0, lambda: (call(), X)[1], lambda: X),
    "checkpoint": lambda call: jax.checkpoint(lambda x: (call(), x)[1])(X),
    "make_jaxpr": lambda call: jax.make_jaxpr(lambda x: (call(), x)[1])(X),
    "eval_shape": lambda call: jax.eval_shape(lambda x: (call(), x)[1], X),
    "jit in vmap": lambda call: jax.vmap(jax.jit(lambda x: (call(), x)[1]))(jnp.ones(2)),
}


class Counter:
    """A strategy with state of every kind, and steps that change it."""

    def __init__(self, executor: str) -> None:
        self.strategy = dist.MirroredStrategy(jax.devices()[:2], executor=executor)
        with self.strategy.scope():
            self.total = dist.Variable(0.0, aggregation="mean")
            self.seen = dist.Variable(0.0, synchronization="on_read", aggregation="sum")
        self.values = dist.PerReplica.from_components([jnp.ones(2), jnp.ones(2)])

    def step(self) -> Any:
        self.total.assign_add(1.0)
        self.seen.assign_add(1.0)
        return self.total.value

    def state(self) -> tuple[float, float, int]:
        return float(self.total.value), float(self.seen.value), self.strategy.step


@pytest.mark.parametrize("executor", ["spmd", "pmap", "mpmd"])
@pytest.mark.parametrize("traced", ["jit", "fori_loop", "grad", "vmap"])
def test_run_is_refused_and_touches_nothing(traced: str, executor: str) -> None:
    counter = Counter(executor)
    counter.strategy.run(counter.step)
    with pytest.raises(ContextError, match=r"run was called inside a traced function .*lax\.scan inside the step"):
        TRACED[traced](lambda: counter.strategy.run(counter.step))
    assert counter.state() == (1, 2, 1)
    counter.strategy.run(counter.step)
    assert counter.state() == (2, 4, 2)


@pytest.mark.parametrize("traced", TRACED)
def test_run_is_refused_in_every_transformation(traced: str) -> None:
    counter = Counter("auto")
    with pytest.raises(ContextError, match="run was called inside a traced function"):
        TRACED[traced](lambda: counter.strategy.run(counter.step))
    counter.strategy.run(counter.step)
    assert counter.state() == (1, 2, 1)


CALLS: dict[str, Callable[[Counter], Any]] = {
    "call_for_each_replica": lambda c: c.strategy.extended.call_for_each_replica(c.step),
    "reduce": lambda c: c.strategy.reduce("sum", c.values, axis=None),
    "reduce of a variable": lambda c: c.strategy.reduce("sum", c.seen, axis=None),
    "gather": lambda c: c.strategy.gather(c.values, axis=0),
    "reduce_to": lambda c: c.strategy.extended.reduce_to("sum", c.values, "CPU:0"),
    "broadcast_to": lambda c: c.strategy.extended.broadcast_to(jnp.ones(2), "CPU:1"),
    "update": lambda c: c.strategy.extended.update(c.total, lambda v: v.assign_add(1.0)),
    "values from a function": lambda c: c.strategy.distribute_values_from_function(lambda _: jnp.ones(2)),
    "assign": lambda c: c.total.assign(3.0),
    "assign_add": lambda c: c.seen.assign(3.0),
    "scatter": lambda c: c.total.assign_sub(jnp.float32(2)),
    "variable": lambda c: dist.Variable(1.0),
    "variable in a scope": lambda c: _made_in_scope(c),
    "next": lambda c: next(iter(c.strategy.distribute_dataset([(np.ones((4, 2), np.float32),)]))),
}


def _made_in_scope(counter: Counter) -> dist.Variable:
    with counter.strategy.scope():
        return dist.Variable(jnp.ones(2), aggregation="mean")


@pytest.mark.parametrize("traced", ["jit", "fori_loop"])
@pytest.mark.parametrize("call", CALLS)
def test_nothing_else_leaks_a_placeholder_either(call: str, traced: str) -> None:
    counter = Counter("auto")
    counter.strategy.run(counter.step)
    with pytest.raises((ContextError, VariableScopeError), match="traced function"):
        TRACED[traced](lambda: CALLS[call](counter))
    counter.strategy.run(counter.step)
    assert counter.state() == (2, 4, 2)
    assert float(counter.strategy.reduce("sum", counter.values, axis=None)[0]) == 2


def test_a_placeholder_is_not_assigned_under_grad() -> None:
    counter = Counter("auto")
    with pytest.raises(VariableScopeError, match="traced function"):
        jax.grad(lambda x: (counter.total.assign(x), x)[1])(X)
    with pytest.raises(VariableScopeError, match="traced function"):
        jax.grad(lambda x: (dist.Variable(x), x)[1])(X)
    counter.strategy.run(counter.step)
    assert counter.state() == (1, 2, 1)


def test_run_inside_a_step_is_refused() -> None:
    counter = Counter("auto")
    with pytest.raises(ContextError, match="inside a step"):
        counter.strategy.run(lambda: counter.strategy.run(counter.step))
    with pytest.raises(ContextError):
        counter.strategy.run(lambda: dist.merge_call(lambda strategy: strategy.run(counter.step)))
    with pytest.raises(ContextError):
        counter.strategy.run(lambda: dist.MirroredStrategy(jax.devices()[:1]).run(lambda: None))
    counter.strategy.run(counter.step)
    assert counter.state()[:2] == (1, 2)


def test_a_scan_inside_the_step_repeats_it() -> None:
    counter = Counter("auto")

    def repeated() -> None:
        lax.scan(lambda carry, _: ((counter.step(), carry)[1], None), None, length=3)

    counter.strategy.run(repeated)
    assert counter.state() == (3, 6, 1)
