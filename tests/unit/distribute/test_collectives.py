from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import drumline.distribute as dist
from drumline.distribute.errors import CollectiveError

pytestmark = pytest.mark.x64


def per_replica(*components: Any) -> dist.PerReplica:
    return dist.PerReplica.from_components([np.asarray(value) for value in components])


def host(value: Any) -> list[Any]:
    return [np.asarray(component).tolist() for component in value.values]


@pytest.fixture(params=["auto", "pmap", "mpmd"])
def two_ways(request: pytest.FixtureRequest) -> dist.MirroredStrategy:
    return dist.MirroredStrategy(jax.devices()[:2], executor=request.param)


def test_all_reduce_takes_nests(two_ways: dist.MirroredStrategy) -> None:
    value = {"a": per_replica(np.float32(1), np.float32(2)), "b": (per_replica(np.int32(3), np.int32(4)),)}
    total = two_ways.run(lambda v: dist.all_reduce("SUM", v), args=(value,))
    assert (host(total["a"]), host(total["b"][0])) == ([3, 3], [7, 7])
    mean = two_ways.run(lambda v: dist.all_reduce(dist.ReduceOp.MEAN, v), args=(value,))
    assert (host(mean["a"]), host(mean["b"][0])) == ([1.5, 1.5], [3.5, 3.5])


@pytest.mark.parametrize(("op", "expected"), [("sum", 3.0), ("mean", 1.5)])
def test_the_gradient_of_all_reduce_is_the_all_reduce_of_gradients(
    two_ways: dist.MirroredStrategy, op: str, expected: float
) -> None:
    def step(x: Any) -> Any:
        context = dist.get_replica_context()
        assert context is not None
        return jax.grad(lambda x: dist.all_reduce(op, x) * (context.replica_id_in_sync_group + 1.0))(x)

    assert host(two_ways.run(step, args=(per_replica(np.float32(5), np.float32(7)),))) == [expected] * 2


def test_all_gather_of_uneven_parts_and_its_gradient(two_ways: dist.MirroredStrategy) -> None:
    def step(x: Any) -> Any:
        context = dist.get_replica_context()
        assert context is not None
        weight = context.replica_id_in_sync_group + 1.0
        return dist.all_gather(x, 0), jax.grad(lambda x: (dist.all_gather(x * x, 0) * weight).sum())(x)

    even = (per_replica(np.asarray([1, 2], np.float32), np.asarray([3, 4], np.float32)),)
    gathered, gradient = two_ways.run(step, args=even)
    assert (host(gathered), host(gradient)) == ([[1, 2, 3, 4]] * 2, [[6, 12], [18, 24]])
    if two_ways.executor == "pmap":
        return
    gathered, gradient = two_ways.run(
        step, args=(per_replica(np.asarray([1, 2], np.float32), np.asarray([3], np.float32)),)
    )
    assert (host(gathered), host(gradient)) == ([[1, 2, 3]] * 2, [[6, 12], [18]])


def test_all_gather_along_another_axis(two_ways: dist.MirroredStrategy) -> None:
    value = per_replica(np.ones((2, 1)), np.zeros((2, 1)))
    assert host(two_ways.run(lambda x: dist.all_gather(x, 1), args=(value,))) == [[[1, 0], [1, 0]]] * 2
    assert host(two_ways.run(lambda x: dist.all_gather(x, -1), args=(value,))) == [[[1, 0], [1, 0]]] * 2


def test_collectives_in_cond_scan_while_and_nested_jit(two_ways: dist.MirroredStrategy) -> None:
    def step(x: Any) -> Any:
        @jax.jit
        def total(x: Any) -> Any:
            return dist.all_reduce("sum", x.sum())

        def body(carry: Any, _: Any) -> Any:
            return carry + total(x), carry

        carry, seen = lax.scan(body, jnp.float32(0), None, length=3)
        carry = lax.cond(carry > 1, lambda: total(carry), lambda: carry)
        _, looped = lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] + total(x)), (0, carry))
        return carry, seen, looped

    for value in (
        per_replica(np.asarray([1, 1], np.float32), np.asarray([1, 1], np.float32)),
        per_replica(np.asarray([1, 2], np.float32), np.asarray([1], np.float32)),
    ):
        if two_ways.executor == "pmap" and value.rows != (2, 2):
            continue
        carry, seen, looped = two_ways.run(step, args=(value,))
        assert host(carry) == [24, 24]
        assert host(seen) == [[0, 4, 8]] * 2
        assert host(looped) == [32, 32]


def test_shapes_that_differ_are_refused_naming_them(two: dist.MirroredStrategy) -> None:
    with pytest.raises(
        ValueError, match=r"psum at .*float32\[2\], float32\[1\]; reduce over the batch axis first"
    ) as caught:
        two.run(
            lambda x: dist.all_reduce("sum", x),
            args=(per_replica(np.asarray([1, 2], np.float32), np.asarray([1], np.float32)),),
        )
    assert isinstance(caught.value, CollectiveError)


def test_bools_strings_and_unknown_operations_are_refused(two: dist.MirroredStrategy) -> None:
    with pytest.raises(ValueError, match=r"bool has no sum"):
        two.run(lambda x: dist.all_reduce("sum", x > 0), args=(per_replica(1, 2),))
    with pytest.raises(TypeError, match=r"bool has no mean"):
        two.run(lambda x: dist.all_reduce("mean", x > 0), args=(per_replica(1, 2),))
    with pytest.raises(ValueError, match=r"'max' is no ReduceOp; use one of sum, mean"):
        two.run(lambda x: dist.all_reduce("max", x), args=(per_replica(1, 2),))


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "float32"])
def test_with_one_replica_an_all_reduce_gives_back_its_value_in_its_dtype(op: str, dtype: str) -> None:
    value = np.asarray([1, 0], dtype)
    result = dist.OneDeviceStrategy("CPU:0").run(lambda x: dist.all_reduce(op, x), args=(value,))
    assert (result.dtype, result.tolist()) == (value.dtype, value.tolist())


def test_scalars_and_ranks_that_differ_cannot_be_gathered(two: dist.MirroredStrategy) -> None:
    with pytest.raises(ValueError, match=r"scalars can't be gathered"):
        two.run(lambda x: dist.all_gather(x), args=(per_replica(1, 2),))
    with pytest.raises(ValueError, match=r"different rank"):
        two.run(lambda x: dist.all_gather(x), args=(per_replica([1], [[2]]),))


@pytest.mark.parametrize(
    "guarded",
    [
        lambda x: lax.cond(x > 1, lambda: dist.all_reduce("sum", x), lambda: x),
        lambda x: lax.cond(lax.axis_index("replica") == 0, lambda: lax.psum(x, "replica"), lambda: x),
        lambda x: lax.while_loop(lambda c: c < 5, lambda c: c + dist.all_reduce("sum", c), x),
        lambda x: lax.cond(
            x > 1, jax.jit(lambda: lax.cond(True, lambda: lax.pmax(x, "replica"), lambda: x)), lambda: x
        ),
    ],
)
def test_a_collective_that_not_all_replicas_would_reach_is_refused(two: dist.MirroredStrategy, guarded: Any) -> None:
    with pytest.raises(CollectiveError, match=r"at .*test_collectives\.py:\d+ lies under a (cond|while loop) at"):
        two.run(guarded, args=(per_replica(np.float32(1), np.float32(2)),))


def test_a_predicate_that_was_all_reduced_is_fine(two: dist.MirroredStrategy) -> None:
    def step(x: Any) -> Any:
        return lax.cond(dist.all_reduce("sum", x) > 1, lambda: dist.all_reduce("sum", x), lambda: x)

    assert host(two.run(step, args=(per_replica(np.float32(1), np.float32(2)),))) == [3, 3]


@pytest.mark.parametrize("replicas", [2, 4, 8])
def test_hundreds_of_ragged_steps_neither_err_nor_hang(replicas: int) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:replicas])
    with strategy.scope():
        seen = dist.Variable(0, aggregation="sum")

    def step(x: Any) -> Any:
        seen.assign_add(x.shape[0])
        return dist.all_reduce("sum", x.sum())

    ragged = [per_replica(*[np.ones(rows, np.float32) for rows in ([2] * (replicas - 1) + [last])]) for last in (1, 0)]
    for i in range(200):
        total = strategy.run(step, args=(ragged[i % 2],))
    assert host(total) == [2.0 * (replicas - 1)] * replicas
    assert int(seen) == 100 * (4 * replicas - 3)
