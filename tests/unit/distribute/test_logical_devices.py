"""Steps whose replicas have several logical devices; those that XLA once aborted on run in a process of their own."""

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.errors import (
    CollectiveError,
    ContextError,
    InvalidTypeError,
    InvalidValueError,
    VariableScopeError,
)

_BEGIN = """
import jax, jax.numpy as jnp, numpy as np
import drumline.distribute as dist
dist.set_cpu_devices(8)
def strategy_of(shape, replicas):
    topology = dist.tpu.initialize_tpu_system(tpu_slice="v3:2x2")
    return dist.TPUStrategy(
        None, dist.tpu.DeviceAssignment.build(topology, computation_shape=shape, num_replicas=replicas)
    )
def rows(replicas, *shape):
    count = int(np.prod((replicas, *shape)))
    return dist.PerReplica.from_components(list(np.arange(count, dtype=np.float32).reshape(replicas, *shape)))
def told(value):
    return [np.asarray(part, np.float32).tolist() for part in value.values]
quads = strategy_of([2, 1, 1, 2], 2)
"""


def program_ends_well(program: str) -> None:
    """A death of the process by XLA fails with what it said last."""
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def strategy_of(shape: list[int], replicas: int) -> dist.TPUStrategy:
    topology = dist.tpu.initialize_tpu_system(tpu_slice="v3:2x2")
    return dist.TPUStrategy(
        None, dist.tpu.DeviceAssignment.build(topology, computation_shape=shape, num_replicas=replicas)
    )


@pytest.fixture
def quads() -> dist.TPUStrategy:
    """Two replicas of four logical devices."""
    return strategy_of([2, 1, 1, 2], 2)


def rows(replicas: int, *shape: int) -> dist.PerReplica:
    count = int(np.prod((replicas, *shape)))
    return dist.PerReplica.from_components(list(np.arange(count, dtype=np.float32).reshape(replicas, *shape)))


def test_bfloat16_is_reduced_and_aggregated_over_replicas_of_several_devices() -> None:
    program_ends_well(
        """
half = lambda x: x.astype(jnp.bfloat16)
assert told(quads.run(lambda x: dist.all_reduce("sum", half(x)), args=(rows(2, 2),))) == [[2, 4]] * 2
assert told(quads.run(lambda x: dist.all_reduce("mean", half(x)), args=(rows(2, 2),))) == [[1, 2]] * 2
assert told(quads.run(lambda x: jax.lax.pmax(half(x), "replica"), args=(rows(2, 2),))) == [[2, 3]] * 2
scattered = quads.run(lambda x: jax.lax.psum_scatter(half(x), "replica", tiled=True), args=(rows(2, 2),))
assert told(scattered) == [[2], [4]]
loop = lambda x: jax.lax.fori_loop(0, 2, lambda _, y: jax.lax.psum(y, "replica"), half(x))
assert told(quads.run(loop, args=(rows(2, 2),))) == [[4, 8]] * 2
for aggregation, expected in (("sum", [2, 4]), ("mean", [1, 2]), ("only_first_replica", [0, 1])):
    with quads.scope():
        v = dist.Variable(jnp.zeros(2, jnp.bfloat16), aggregation=aggregation)
    def write(x, v=v):
        v.assign(half(x))
    quads.run(write, args=(rows(2, 2),))
    assert v.dtype == jnp.bfloat16 and np.asarray(v.value, np.float32).tolist() == expected, aggregation
"""
    )


def test_a_variable_is_split_after_a_scatter_of_split_rows() -> None:
    program_ends_well(
        """
with quads.scope():
    table = dist.Variable(jnp.zeros((8, 4)), aggregation="sum")
def step(x):
    table.scatter_add(dist.IndexedSlices(quads.split_to_logical_devices(x + 0, [2, 2]), jnp.array([1, 3])))
    return quads.split_to_logical_devices(table.value[:4] * 2, [4, 1])
doubled = quads.run(step, args=(rows(2, 2, 4),))
expected = np.zeros((8, 4)); expected[1] = [8, 10, 12, 14]; expected[3] = [16, 18, 20, 22]
assert np.asarray(table.value).tolist() == expected.tolist()
assert told(doubled) == [(expected[:4] * 2).tolist()] * 2
"""
    )


def test_one_replica_of_several_devices_waits_for_its_oldest_step_as_others_do() -> None:
    one = strategy_of([2, 2, 1, 2], 1)
    assert one.window is dist.MirroredStrategy(["CPU:0", "CPU:1"]).window
    assert one.window.limit is not None


def test_one_replicas_output_stays_split() -> None:
    one = strategy_of([2, 2, 1, 2], 1)
    split = one.run(lambda x: one.split_to_logical_devices(x + 0, [4, 2]), args=(jnp.ones((8, 8)),))
    whole = one.run(lambda x: dist.mirrored(one.split_to_logical_devices(x + 0, [4, 2])), args=(jnp.ones((8, 8)),))
    assert {shard.data.shape for shard in split.addressable_shards} == {(2, 4)}
    assert {shard.data.shape for shard in whole.addressable_shards} == {(8, 8)}


def test_a_split_where_replicas_may_go_different_ways_is_refused_before_it_runs(quads: dist.TPUStrategy) -> None:
    def rolled(a: Any) -> Any:
        return quads.split_to_logical_devices(jnp.roll(quads.split_to_logical_devices(a * 2, [4]), 1), [4])

    def inside(x: Any) -> Any:
        return jax.lax.cond(x[0] > 0, rolled, lambda a: a, x)

    def before(x: Any) -> Any:
        return jax.lax.cond(x[0] > 0, lambda a: jnp.roll(a, 1), lambda a: a, quads.split_to_logical_devices(x, [4]))

    def loop(x: Any) -> Any:
        return jax.lax.while_loop(lambda a: jnp.sum(a) < 100, rolled, x + 1)

    for step in (inside, before, loop):
        with pytest.raises(CollectiveError, match=r"splits a value over logical devices at .*can differ between"):
            quads.run(step, args=(rows(2, 8),))

    def same_way(x: Any) -> Any:
        return jax.lax.cond(dist.all_reduce("sum", x[0]) > 0, rolled, lambda a: a, x)

    same = quads.run(same_way, args=(rows(2, 8),))
    np.testing.assert_array_equal(same.values[1], np.roll(np.arange(8, 16) * 2, 1))


def test_one_replica_splits_where_it_likes() -> None:
    one = strategy_of([2, 2, 1, 2], 1)

    def step(x: Any) -> Any:
        way = x[0] > 0
        return jax.lax.cond(way, lambda a: jnp.roll(one.split_to_logical_devices(a, [8]), 1) + 0, lambda a: -a, x)

    assert one.run(step, args=(jnp.arange(1.0, 9.0),)).tolist() == [8, 1, 2, 3, 4, 5, 6, 7]


def test_a_result_that_left_a_step_split_comes_whole_into_one_whose_replicas_go_different_ways() -> None:
    program_ends_well(
        """
split = quads.run(lambda x: quads.split_to_logical_devices(x + 0, [4]), args=(rows(2, 8),))
rolled = quads.run(lambda x: jax.lax.cond(jnp.sum(x) > 30, lambda a: jnp.roll(a, 1), lambda a: a, x), args=(split,))
assert told(rolled) == [list(range(8)), [15, *range(8, 15)]]
"""
    )


def test_a_function_of_one_logical_device_names_no_other(quads: dist.TPUStrategy) -> None:
    def nested(x: Any) -> Any:
        return quads.assign_to_logical_device(lambda a: quads.assign_to_logical_device(jnp.sum, 0)(a) + 1, 1)(x)

    def split(x: Any) -> Any:
        return quads.assign_to_logical_device(lambda a: quads.split_to_logical_devices(a, [4]), 1)(x)

    for step in (nested, split):
        with pytest.raises(ContextError, match="inside a function that one of them computes"):
            quads.run(step, args=(rows(2, 4),))


@pytest.mark.parametrize(
    "exchange",
    [
        lambda a: jax.lax.ppermute(a, "replica", [(0, 1), (1, 0)]),
        lambda a: jax.lax.all_to_all(a, "replica", 0, 0, tiled=True),
        lambda a: jax.lax.psum(a, "logical1"),
        lambda a: jax.lax.scan(lambda c, _: (jax.lax.psum(c, ("replica", "logical0")), None), a, None, 2)[0],
    ],
    ids=["ppermute", "all_to_all", "of_logical_devices", "of_all_devices"],
)
def test_a_function_of_one_logical_device_does_not_wait_for_the_others(quads: dist.TPUStrategy, exchange: Any) -> None:
    with pytest.raises(CollectiveError, match="collective over logical devices inside a function that one"):
        quads.run(lambda x: quads.assign_to_logical_device(exchange, 1)(x), args=(rows(2, 4),))


def test_a_function_of_one_logical_device_reads_variables_and_writes_none(quads: dist.TPUStrategy) -> None:
    with quads.scope():
        weight = dist.Variable(jnp.full(2, 3.0), aggregation="mean")
        seen = dist.Variable(1.0, synchronization="on_read", aggregation="sum")

    def step(x: Any) -> Any:
        weight.assign(weight.value * 2)
        return quads.assign_to_logical_device(lambda a, k: a * weight.value + seen.value * k, 1)(x, k=x[0])

    result = quads.run(step, args=(rows(2, 2),))
    assert [part.tolist() for part in result.values] == [[0.0, 6.0], [14.0, 20.0]]
    with pytest.raises(VariableScopeError, match="written inside a function that one logical device computes"):
        quads.run(lambda x: quads.assign_to_logical_device(lambda a: weight.assign(a).value, 1)(x), args=(rows(2, 2),))


@pytest.mark.parametrize(
    ("pieces", "named"),
    [([2.7, 2], r"\[2.7"), ("22", "'22'"), ([[2], [2]], r"\[\[2\]"), (2, "2"), (None, "None")],
)
def test_pieces_that_are_no_whole_numbers_are_refused_by_name(quads: dist.TPUStrategy, pieces: Any, named: str) -> None:
    with pytest.raises(InvalidValueError, match=f"partition_dimensions must be a list of whole numbers.*got {named}"):
        quads.run(lambda x: quads.split_to_logical_devices(x, pieces), args=(rows(2, 4, 4),))


def test_what_is_no_array_is_refused_by_name(quads: dist.TPUStrategy) -> None:
    with pytest.raises(InvalidTypeError, match=r"logical devices hold arrays; got \{'a'"):
        quads.run(lambda x: quads.split_to_logical_devices({"a": x}, [4]), args=(rows(2, 4),))
    with pytest.raises(InvalidTypeError, match="logical devices hold arrays; got 'mean'"):
        quads.run(lambda x: quads.assign_to_logical_device(lambda a, how: a, 1)(x, "mean"), args=(rows(2, 4),))
    with pytest.raises(InvalidTypeError, match="returned a random key"):
        quads.run(lambda: quads.assign_to_logical_device(lambda: jax.random.key(0), 1)())


def test_a_variable_is_split_as_its_value_is(quads: dist.TPUStrategy) -> None:
    with quads.scope():
        table = dist.Variable(jnp.arange(8.0), aggregation="mean")
    result: Any = quads.run(
        lambda: (quads.split_to_logical_devices(table, [4]) + 1, quads.replicate_to_logical_devices(table) + 1)
    )
    for part in result:
        assert part.values[1].tolist() == list(range(1, 9))


def test_a_plan_counts_what_replicas_send_and_not_the_devices_of_one(quads: dist.TPUStrategy) -> None:
    def step(x: Any) -> Any:
        return dist.all_reduce("sum", quads.assign_to_logical_device(lambda a: a * 2, 1)(x))

    found: list[Any] = []

    class Planner:
        def step_program(self, record: Any) -> None:
            found.extend(record.collectives)

        def input_divided(self, explanation: Any) -> None: ...

        def __getattr__(self, name: str) -> Any:
            return lambda *_: None

    quads.observe(Planner())
    quads.run(step, args=(rows(2, 4),))
    assert [(each.kind, each.bytes) for each in found] == [("all_reduce", 16)]


def test_branches_that_end_split_unequally_are_a_typed_error_and_equal_ones_run(quads: dist.TPUStrategy) -> None:
    split = quads.split_to_logical_devices

    def branches(pieces: list[int]) -> Any:
        def step(x: Any) -> Any:
            return jax.lax.cond(jnp.sum(x) > 30, lambda a: split(a * 2, [2, 2]), lambda a: split(a * 3, pieces), x)

        return step

    x = jnp.ones((4, 4))
    with pytest.raises(InvalidValueError, match="branches of a cond or switch end split unequally"):
        quads.run(branches([4, 1]), args=(x,))
    assert np.sum(quads.local_results(quads.run(branches([2, 2]), args=(x,)))[0]) == 48
