from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.errors import CollectiveError, ContextError

BATCH = [1.0, 2.0]


def batch() -> dist.PerReplica:
    return dist.PerReplica.from_components(BATCH)


def test_outside_everything_there_is_one_default_replica() -> None:
    context = dist.get_replica_context()
    assert context is not None
    assert (dist.has_strategy(), dist.in_cross_replica_context()) == (False, False)
    assert (context.replica_id_in_sync_group, context.num_replicas_in_sync) == (0, 1)
    assert dist.get_strategy().num_replicas_in_sync == 1


def test_the_default_replica_context_works_like_one_replica() -> None:
    context = dist.get_replica_context()
    assert context is not None
    assert context.all_reduce("sum", jnp.float32(3)) == 3
    assert context.all_gather(jnp.arange(2), 0).tolist() == [0, 1]
    assert context.merge_call(lambda strategy, x: x + 1, args=(1,)) == 2
    assert dist.all_reduce("mean", jnp.int16(3)).dtype == jnp.int16


def test_in_a_scope_the_strategy_is_current_and_no_replica_is(two: dist.MirroredStrategy) -> None:
    with two.scope() as yielded, two.scope():
        assert yielded is two
        assert dist.get_strategy() is two
        assert (dist.has_strategy(), dist.in_cross_replica_context()) == (True, True)
        assert dist.get_replica_context() is None
    assert not dist.has_strategy()


def test_inside_run_there_is_a_replica_context(two: dist.MirroredStrategy) -> None:
    seen: list[Any] = []

    def step() -> None:
        context = dist.get_replica_context()
        assert context is not None
        seen.append((dist.in_cross_replica_context(), context.strategy is two, dist.get_strategy() is two))

    two.run(step)
    assert seen == [(False, True, True)]


def test_set_strategy_holds_until_it_is_undone(two: dist.MirroredStrategy) -> None:
    dist.set_strategy(two)
    try:
        assert dist.get_strategy() is two
        assert dist.in_cross_replica_context()
        assert dist.get_replica_context() is None
    finally:
        dist.set_strategy(None)
    assert not dist.has_strategy()
    with two.scope(), pytest.raises(RuntimeError, match=r"call it outside"):
        dist.set_strategy(two)


def test_scopes_belong_to_their_thread(two: dist.MirroredStrategy) -> None:
    seen: list[bool] = []
    with two.scope():
        thread = threading.Thread(target=lambda: seen.append(dist.has_strategy()))
        thread.start()
        thread.join()
    assert seen == [False]


@pytest.mark.parametrize("what", ["scope", "run", "reduce", "gather", "distribute_values_from_function"])
def test_cross_replica_calls_inside_a_step_are_refused(two: dist.MirroredStrategy, what: str) -> None:
    def step(x: Any) -> Any:
        if what == "scope":
            with two.scope():
                return x
        arguments = {"run": (jnp.sin, (x,)), "reduce": ("sum", x, None), "gather": (x, 0)}
        return getattr(two, what)(*arguments.get(what, (lambda context: 1,)))

    with pytest.raises(RuntimeError, match=rf"{what} was called inside a step"):
        two.run(step, args=(batch(),))


def test_two_strategies_cannot_be_mixed(two: dist.MirroredStrategy, three: dist.MirroredStrategy) -> None:
    with two.scope():
        with pytest.raises(RuntimeError, match=r"can't be mixed"), three.scope():
            pass
        with pytest.raises(RuntimeError, match=r"run of .* can't be mixed"):
            three.run(lambda: 1)
        with pytest.raises(RuntimeError, match=r"reduce of .* can't be mixed"):
            three.reduce("sum", 1, None)


def test_replica_calls_outside_a_step_are_refused(two: dist.MirroredStrategy) -> None:
    with two.scope():
        calls: list[Callable[[], Any]] = [
            lambda: dist.all_reduce("sum", 1),
            lambda: dist.all_gather(jnp.ones(1)),
            lambda: dist.merge_call(max),
        ]
        for call in calls:
            with pytest.raises(RuntimeError, match=r"in cross-replica context"):
                call()


def test_a_replica_context_is_good_for_its_own_step_only(two: dist.MirroredStrategy) -> None:
    kept: list[Any] = []

    def step(x: Any) -> Any:
        kept.append(dist.get_replica_context())
        return x

    two.run(step, args=(batch(),))
    with pytest.raises(ContextError, match=r"not the current one"):
        kept[0].all_reduce("sum", 1.0)
    with two.scope(), pytest.raises(ContextError, match=r"not the current one"):
        kept[0].merge_call(max)
    with pytest.raises(ContextError, match=r"not the current one"):
        two.run(lambda x: kept[0].all_reduce("sum", x), args=(batch(),))
    default = dist.get_replica_context()
    assert default is not None
    with pytest.raises(ContextError, match=r"not the current one"):
        two.run(lambda x: default.all_reduce("sum", x), args=(batch(),))


def test_a_captured_per_replica_value_is_refused(two: dist.MirroredStrategy) -> None:
    captured: Any = batch()
    with pytest.raises(ValueError, match=r"was captured by the step; pass it in args"):
        two.run(lambda: captured + 1)
    with pytest.raises(ValueError, match=r"was captured by the step"):
        two.run(lambda x: x * captured, args=(batch(),))


def test_a_per_replica_value_is_no_array(two: dist.MirroredStrategy) -> None:
    value: Any = batch()
    operators: list[Callable[[], Any]] = [lambda: value + 1, lambda: np.ones(2) * value, lambda: value < 1]
    protocols: list[Callable[[], Any]] = [
        lambda: value[0],
        lambda: float(value),
        lambda: len(value),
        lambda: iter(value),
        lambda: f"{value:.2f}",
    ]
    for misuse in (*operators, *protocols):
        with pytest.raises(TypeError, match=r"^PerReplica.*use strategy.local_results"):
            misuse()
    functions: list[Callable[[Any], Any]] = [jnp.sum, jnp.exp, jax.jit(jnp.exp), lambda x: jnp.ones(2) + x]
    for function in functions:
        with pytest.raises(ValueError, match=r"^PerReplica.*use strategy.local_results"):
            function(value)
    assert f"{value}" == str(value) == "PerReplica:{\n  0: 1.0,\n  1: 2.0\n}"
    assert repr(value) == "PerReplica(1.0, 2.0)"


def test_a_strategy_cannot_be_copied(two: dist.MirroredStrategy) -> None:
    with pytest.raises(RuntimeError, match=r"can't be copied by copy\.copy"):
        copy.copy(two)


def test_merge_call_sees_all_replicas_and_gives_each_its_part(three: dist.MirroredStrategy) -> None:
    calls: list[Any] = []

    def merge(strategy: Any, x: Any, constant: Any) -> Any:
        calls.append((dist.in_cross_replica_context(), dist.get_replica_context(), dist.get_strategy() is strategy))
        own = dist.PerReplica.from_components([value * 10 for value in strategy.local_results(x)])
        return sum(strategy.local_results(x)), own, x, strategy.reduce("mean", x, None), constant

    def step(x: Any) -> Any:
        return dist.merge_call(merge, args=(x,), kwargs={"constant": 5})

    total, own, same, mean, constant = three.run(step, args=(dist.PerReplica.from_components([1.0, 2.0, 6.0]),))
    assert (float(total), float(mean), constant) == (9, 3, 5)
    assert [float(v) for v in own.values] == [10, 20, 60]
    assert [float(v) for v in same.values] == [1, 2, 6]
    assert calls == [(True, None, True)]


def test_merge_call_works_on_ragged_values(three: dist.MirroredStrategy) -> None:
    def merge(strategy: Any, x: Any) -> Any:
        return strategy.reduce("mean", x, axis=0), jnp.concatenate(strategy.local_results(x)), x

    ragged = dist.PerReplica.from_components(
        [np.asarray([1, 2], np.float32), np.asarray([6], np.float32), np.zeros(0, np.float32)]
    )
    mean, joined, own = three.run(lambda x: dist.merge_call(merge, args=(x,)), args=(ragged,))
    assert (float(mean), joined.tolist()) == (3, [1, 2, 6])
    assert [v.tolist() for v in own.values] == [[1, 2], [6], []]


def test_variables_written_in_a_merge_change_on_all_replicas(three: dist.MirroredStrategy) -> None:
    with three.scope():
        variable = dist.Variable(100.0, aggregation="sum")

    def merge(strategy: Any, gradient: Any) -> None:
        variable.assign_sub(strategy.reduce("sum", gradient, None))

    three.run(lambda x: dist.merge_call(merge, args=(x,)), args=(dist.PerReplica.from_components([1.0, 2.0, 6.0]),))
    assert [float(v) for v in variable.values] == [91] * 3


@pytest.mark.parametrize(
    "nest", [jax.jit, lambda f: lambda: jax.lax.cond(True, f, f), lambda f: lambda: jax.grad(f)(1.0)]
)
def test_merge_call_below_the_top_level_is_refused(two: dist.MirroredStrategy, nest: Any) -> None:
    def step() -> Any:
        return nest(lambda *_: dist.merge_call(lambda strategy, x: x, args=(jnp.ones(()),)))()

    with pytest.raises(RuntimeError, match=r"at the top level"):
        two.run(step)


def test_merge_call_inside_a_merge_is_refused(two: dist.MirroredStrategy) -> None:
    with pytest.raises(RuntimeError, match=r"in cross-replica context"):
        two.run(lambda: dist.merge_call(lambda strategy: dist.merge_call(lambda strategy: 1)))


def test_an_error_in_a_merge_function_is_raised_as_it_is(two: dist.MirroredStrategy) -> None:
    def merge(strategy: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match=r"mine"):
        two.run(lambda: dist.merge_call(merge))


@pytest.mark.parametrize("call", [lambda x: dist.all_gather(x[None]), lambda x: dist.merge_call(lambda s, x: x, (x,))])
def test_a_call_that_only_some_replicas_make_is_refused(two: dist.MirroredStrategy, call: Any) -> None:
    def step(x: Any) -> Any:
        context = dist.get_replica_context()
        assert context is not None
        return call(x) if context.replica_id_in_sync_group == 0 else x

    with pytest.raises(CollectiveError, match=r"replicas of one step went different ways: replica 0 at"):
        two.run(step, args=(batch(),))


def test_an_all_reduce_that_only_some_replicas_make_is_refused(two: dist.MirroredStrategy) -> None:
    def step(x: Any) -> Any:
        context = dist.get_replica_context()
        assert context is not None
        return dist.all_reduce("sum", x) if context.replica_id_in_sync_group == 0 else x

    with pytest.raises(
        CollectiveError, match=r"replicas \[1\] ended their step while others wait in psum at .*test_context"
    ):
        two.run(step, args=(batch(),))
