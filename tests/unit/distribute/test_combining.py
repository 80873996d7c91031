"""Rows of replicas come together as TensorFlow 2.21 was seen to bring them together, wherever that is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.errors import InvalidTypeError, InvalidValueError, UnsupportedError
from drumline.distribute.observe import ReductionRecord

pytestmark = pytest.mark.x64(often=False)

KINDS = ("spmd", "pmap", "mpmd", "auto", "central")


@pytest.fixture(params=KINDS)
def strategy(request: pytest.FixtureRequest) -> dist.Strategy:
    """Two replicas, by every executor."""
    if request.param == "central":
        return dist.CentralStorageStrategy(jax.devices()[:2], jax.devices()[0])
    return dist.MirroredStrategy(jax.devices()[:2], executor=request.param)


def rows(values: Any, indices: Any, dense_shape: Any = (5, 2), dtype: Any = np.float32) -> dist.IndexedSlices:
    return dist.IndexedSlices(np.asarray(values, dtype), np.asarray(indices, np.int32), dense_shape)


def two_and_two(strategy: dist.Strategy) -> Any:
    """Rows 0, 1 of replica 0 and rows 2, 3 of replica 1."""
    table = [rows([[1, 2], [3, 4]], [0, 1]), rows([[2, 2], [3, 4]], [2, 3])]
    return strategy.distribute_values_from_function(lambda c: table[c.replica_id_in_sync_group])


def per_replica(strategy: dist.Strategy, make: Callable[[int], Any]) -> Any:
    return strategy.distribute_values_from_function(lambda c: make(c.replica_id_in_sync_group))


def shown(value: Any) -> Any:
    """Plain Python numbers of rows, distributed values and arrays."""
    if isinstance(value, dist.IndexedSlices):
        dense_shape = None if value.dense_shape is None else list(value.dense_shape)
        return {"values": np.asarray(value.values).tolist(), "indices": np.asarray(value.indices).tolist()} | {
            "dense_shape": dense_shape
        }
    if isinstance(value, dist.DistributedValue):
        return [shown(component) for component in value.values]
    return np.asarray(value).tolist()


SUM = {"values": [[1, 2], [3, 4], [2, 2], [3, 4]], "indices": [0, 1, 2, 3], "dense_shape": [5, 2]}
MEAN = SUM | {"values": [[0.5, 1], [1.5, 2], [1, 1], [1.5, 2]]}
DENSE = [[1, 2], [3, 4], [2, 2], [3, 4], [0, 0]]


@pytest.mark.parametrize(("op", "expected"), [("sum", SUM), ("mean", MEAN)])
def test_reduced_rows_keep_their_indices(strategy: dist.Strategy, op: str, expected: Any) -> None:
    value = two_and_two(strategy)
    assert shown(strategy.reduce(op, value, axis=None)) == expected
    returned = strategy.run(lambda slices: slices, (value,))
    assert shown(strategy.reduce(op, returned, axis=None)) == expected
    nest = strategy.reduce(op, {"a": value, "b": (returned,)}, axis=None)
    assert shown(nest["a"]) == shown(nest["b"][0]) == expected


def test_rows_made_in_a_step_are_per_replica_rows_of_tensorflow(strategy: dist.Strategy) -> None:
    def step() -> dist.IndexedSlices:
        replica = jnp.asarray(dist.get_replica_context().replica_id_in_sync_group)  # type: ignore[union-attr]  # in run
        indices = 2 * replica + jnp.arange(2, dtype=jnp.int32)
        return dist.IndexedSlices(jnp.ones((2, 2), jnp.float32), indices, (5, 2))

    result = strategy.run(step)
    assert isinstance(result, dist.PerReplica)
    assert [np.asarray(own.indices).tolist() for own in result.values] == [[0, 1], [2, 3]]
    assert shown(strategy.reduce("sum", result, axis=None))["indices"] == [0, 1, 2, 3]
    assert [shown(own)["indices"] for own in strategy.local_results(result)] == [[0, 1], [2, 3]]
    assert repr(result).startswith("PerReplica(IndexedSlices(float32[2, 2] at rows int32[2] of [5, 2]), ")


@pytest.mark.parametrize(
    ("op", "axis", "expected"),
    [
        ("sum", 0, [9, 12]),
        ("sum", -1, [3, 7, 4, 7, 0]),
        ("sum", (0, 1), 21),
        ("mean", 0, [0.9, 1.2]),
        ("mean", 1, [0.75, 1.75, 1, 1.75, 0]),
    ],
)
def test_with_an_axis_rows_count_as_the_array_they_stand_for(
    strategy: dist.Strategy, op: str, axis: Any, expected: Any
) -> None:
    reduced = strategy.reduce(op, two_and_two(strategy), axis=axis)
    np.testing.assert_allclose(np.asarray(reduced), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "op", "expected"),
    [
        (lambda r: rows([[1, 2]] * (r + 1), range(r + 1)), "sum", ([[1, 2]] * 3, [0, 0, 1], [5, 2])),
        (lambda r: rows([[1, 2]] * (r + 1), range(r + 1)), "mean", ([[0.5, 1]] * 3, [0, 0, 1], [5, 2])),
        (lambda r: rows(np.ones((r, 2)), range(r)), "sum", ([[1, 1]], [0], [5, 2])),
        (lambda r: rows(np.ones((0, 2)), range(0)), "mean", ([], [], [5, 2])),
        (lambda r: rows([[1, 2], [3, 4]], [1, 1]), "sum", ([[1, 2], [3, 4]] * 2, [1, 1, 1, 1], [5, 2])),
        (lambda r: rows([[1, 2]], [r], None), "sum", ([[1, 2]] * 2, [0, 1], None)),
        (lambda r: rows([[1, 2]], [r], None if r else [5, 2]), "sum", ([[1, 2]] * 2, [0, 1], [5, 2])),
        (lambda r: rows([1.0 + r], [r], (5,)), "mean", ([0.5, 1], [0, 1], [5])),
        (lambda r: rows(np.ones((1, 2, 2)), [r], (5, 2, 2)), "mean", (np.full((2, 2, 2), 0.5), [0, 1], [5, 2, 2])),
        (lambda r: rows([[1, 2]], [r], dtype=np.int32), "sum", ([[1, 2]] * 2, [0, 1], [5, 2])),
        (lambda r: rows([[1, 2]], [r], dtype=np.int8), "mean", ([[0.5, 1]] * 2, [0, 1], [5, 2])),
        (lambda r: rows([[True, False]], [r], dtype=bool), "sum", ([[True, False]] * 2, [0, 1], [5, 2])),
    ],
    ids=[
        "ragged",
        "ragged_mean",
        "empty",
        "all_empty",
        "repeated",
        "shapeless",
        "one_shape",
        "rank_1",
        "rank_3",
        "int32",
        "int8_mean",
        "bool",
    ],
)
def test_rows_of_any_number_and_kind_come_together(
    strategy: dist.Strategy, make: Any, op: str, expected: tuple[Any, Any, Any]
) -> None:
    reduced = strategy.reduce(op, per_replica(strategy, make), axis=None)
    values, indices, dense_shape = expected
    assert shown(reduced) == {"values": np.asarray(values).tolist(), "indices": indices, "dense_shape": dense_shape}


@pytest.mark.parametrize(
    ("make", "op", "error"),
    [
        (lambda r: rows([[1, 2]], [r], (5 + r, 2)), "sum", InvalidValueError),
        (lambda r: rows([[1] * (2 + r)], [r], None), "sum", InvalidValueError),
        (lambda r: rows([[1, 2]], [r], dtype=np.int32 if r else np.float32), "sum", InvalidTypeError),
        (lambda r: rows([[True, False]], [r], dtype=bool), "mean", InvalidTypeError),
        (lambda r: rows([[1, 2]], [r, r]), "sum", InvalidValueError),
        (lambda r: dist.IndexedSlices(np.ones((1, 2)), np.asarray([0.5])), "sum", InvalidTypeError),
    ],
    ids=["other_array", "other_width", "other_dtype", "mean_of_bools", "too_many_indices", "index_no_integer"],
)
def test_rows_that_do_not_go_together_are_refused(strategy: dist.Strategy, make: Any, op: str, error: Any) -> None:
    value = per_replica(strategy, make)
    attempts: list[Callable[[], Any]] = [
        lambda: strategy.reduce(op, value, axis=None),
        lambda: strategy.extended.reduce_to(op, value, "CPU:0"),
        lambda: dist.ReductionToOneDevice().reduce(op, value, "CPU:0"),
    ]
    for reduce in attempts:
        with pytest.raises(error):
            reduce()


def test_rows_of_one_replica_and_an_array_of_another_are_added_up(strategy: dist.Strategy) -> None:
    value = per_replica(strategy, lambda r: rows([[1, 2]], [r]) if r else np.ones((5, 2), np.float32))
    expected = [[1, 1], [2, 3], [1, 1], [1, 1], [1, 1]]
    assert shown(strategy.reduce("sum", value, axis=None)) == expected
    assert shown(strategy.extended.reduce_to("sum", value, "CPU:1")) == expected


def test_rows_given_as_they_are_have_no_sum_over_the_replicas(strategy: dist.Strategy) -> None:
    plain = rows([[1, 2]], [1])
    with pytest.raises(InvalidValueError, match=r"sum over 2 replicas of a plain value IndexedSlices"):
        strategy.reduce("sum", plain, axis=None)
    assert strategy.reduce("mean", plain, axis=None) is plain
    assert shown(strategy.reduce("sum", plain, axis=0)) == [2, 4]
    assert strategy.local_results(plain) == (plain,)


def test_gathered_rows_are_the_arrays_they_stand_for(strategy: dist.Strategy) -> None:
    empty = [[0.0, 0.0]]
    assert shown(strategy.gather(two_and_two(strategy), axis=0)) == [
        *[[1, 2], [3, 4], *empty * 3],
        *[*empty * 2, [2, 2], [3, 4], *empty],
    ]
    with pytest.raises(UnsupportedError, match=r"gather .to_dense"):
        strategy.gather(rows([[1, 2]], [1]), axis=0)


@pytest.mark.parametrize(
    "operations",
    [
        dist.ReductionToOneDevice(),
        dist.ReductionToOneDevice(accumulation_fn=lambda arrays: jnp.sum(jnp.stack(arrays), 0)),
        dist.HierarchicalCopyAllReduce(),
        dist.NcclAllReduce(),
        dist.AllReduceCrossDeviceOps(num_packs=0),
    ],
    ids=["one_device", "accumulation_fn", "hierarchical", "nccl", "all_reduce"],
)
def test_every_kind_of_cross_device_operations_takes_rows(
    strategy: dist.Strategy, operations: dist.CrossDeviceOps
) -> None:
    value, plain = two_and_two(strategy), per_replica(strategy, lambda r: np.asarray([1, 2], np.float32))
    with strategy.scope():
        variable = dist.Variable(jnp.zeros((5, 2)), aggregation="sum")
    copies = len(variable.values)

    def everywhere(expected: Any) -> Any:
        return expected if copies == 1 else [expected] * copies

    assert shown(operations.reduce("sum", value, "CPU:1")) == SUM
    assert shown(operations.reduce("mean", value, variable)) == everywhere(MEAN)
    batch = operations.batch_reduce("sum", [(value, variable), (plain, variable), (value, "CPU:0")])
    assert [shown(one) for one in batch] == [everywhere(SUM), everywhere([2, 4]), SUM]
    assert shown(operations.broadcast(rows([[1, 2]], [1]), variable)) == everywhere(shown(rows([[1, 2]], [1])))
    assert shown(operations.reduce("sum", value, value)) == [SUM, SUM]


def test_rows_reduced_to_a_variable_update_it(strategy: dist.Strategy) -> None:
    with strategy.scope():
        variable = dist.Variable(jnp.zeros((5, 2)), aggregation="mean")
    reduced = strategy.extended.reduce_to("mean", two_and_two(strategy), variable)
    strategy.extended.update(variable, lambda var, slices: var.scatter_sub(slices), args=(reduced,))
    assert shown(variable) == (-np.asarray(DENSE) / 2).tolist()
    dense = strategy.run(lambda slices: slices.to_dense(), (reduced,))
    assert [shown(copy) for copy in strategy.local_results(dense)] in ([(np.asarray(DENSE) / 2).tolist()] * 2,) * 2


def test_an_optimizer_merges_rows_and_updates_a_variable_in_the_step(strategy: dist.Strategy) -> None:
    with strategy.scope():
        variable = dist.Variable(jnp.zeros((5, 2)), aggregation="sum")

    def apply(strategy: dist.Strategy, slices: Any) -> None:
        reduced = strategy.extended.reduce_to("sum", slices, variable)
        strategy.extended.update(variable, lambda var, rows: var.scatter_add(rows), args=(reduced,))

    strategy.run(lambda slices: dist.merge_call(apply, args=(slices,)), (two_and_two(strategy),))
    assert shown(variable) == DENSE


def test_merge_functions_combine_rows_as_the_strategy_does_outside(strategy: dist.Strategy) -> None:
    def step(slices: Any) -> Any:
        def merged(fn: Callable[..., Any]) -> Any:
            return dist.merge_call(fn, args=(slices,))

        return (
            merged(lambda s, slices: s.reduce("mean", slices, axis=None)),
            merged(lambda s, slices: s.reduce("sum", slices, axis=0)),
            merged(lambda s, slices: s.gather(slices, axis=0)),
            merged(lambda s, slices: slices),
            merged(lambda s, slices: sum(own.to_dense() for own in s.local_results(slices))),
        )

    value = two_and_two(strategy)
    mean, total, gathered, same, added = strategy.run(step, (value,))
    assert [shown(mean), shown(total), shown(same)] == [MEAN, [9, 12], shown(value)]
    assert shown(gathered) == shown(strategy.gather(value, axis=0))
    assert shown(strategy.local_results(added)[0]) == DENSE


def test_gradients_of_embedding_look_ups_travel_as_rows(strategy: dist.Strategy) -> None:
    table = np.arange(10, dtype=np.float32).reshape(5, 2)

    def step(words: Any, targets: Any) -> Any:
        looked_up = jnp.asarray(table)[words]
        gradients = jax.grad(lambda looked_up: jnp.sum((looked_up - targets) ** 2))(looked_up)
        return dist.all_reduce("sum", dist.IndexedSlices(gradients, words, table.shape))

    words, targets = np.asarray([[0, 1], [1, 4]]), np.ones((2, 2, 2), np.float32)
    reduced = strategy.run(step, tuple(dist.PerReplica.from_components(list(part)) for part in (words, targets)))
    (dense,) = {str(shown(own.to_dense())) for own in strategy.local_results(reduced)}
    expected = jax.grad(lambda table: jnp.sum((table[words.ravel()] - 1) ** 2))(jnp.asarray(table))
    assert dense == str(shown(expected))


def test_assigned_rows_are_the_array_they_stand_for(strategy: dist.Strategy) -> None:
    with strategy.scope():
        total = dist.Variable(jnp.zeros((5, 2)), aggregation="sum")
    total.assign(rows([[1, 2], [3, 4]], [1, 1]))
    assert shown(total) == [[0, 0], [4, 6], [0, 0], [0, 0], [0, 0]]
    total.assign_sub(rows([[1, 2]], [1]))
    assert shown(total) == [[0, 0], [3, 4], [0, 0], [0, 0], [0, 0]]
    strategy.run(lambda slices: total.assign_add(slices), (two_and_two(strategy),))
    assert shown(total) == [[1, 2], [6, 8], [2, 2], [3, 4], [0, 0]]
    with pytest.raises(InvalidValueError, match=r"does not fit an array of shape \[5, 2\]"):
        total.assign(rows([[1, 2]], [1], (6, 2)))
    with pytest.raises(InvalidValueError, match=r"reduce .* by strategy.reduce"):
        total.scatter_add(two_and_two(strategy))
    with pytest.raises(InvalidTypeError, match=r"takes dist.IndexedSlices"):
        total.scatter_add(np.ones((5, 2), np.float32))  # type: ignore[arg-type]  # what is tested


@pytest.mark.filterwarnings("ignore::drumline.distribute.errors.DivergingCopiesWarning")
def test_copies_of_their_own_take_rows_of_their_own(two: dist.MirroredStrategy) -> None:
    with two.scope():
        variable = dist.Variable(jnp.zeros((5, 2)))
    variable.scatter_add(two_and_two(two))
    assert [shown(copy)[0] + shown(copy)[2] for copy in variable.values] == [[1, 2, 0, 0], [0, 0, 2, 2]]


def test_one_replica_reduces_rows_to_themselves() -> None:
    strategy = dist.OneDeviceStrategy(jax.devices()[0])
    for one in (strategy, dist.get_strategy()):
        returned = one.run(lambda: rows([[1, 2]], [1]))
        for result in (one.reduce("sum", returned, axis=None), one.extended.reduce_to("mean", returned, "CPU:0")):
            assert shown(result) == shown(rows([[1, 2]], [1]))


def test_an_observer_sees_the_values_of_reduced_rows(two: dist.MirroredStrategy) -> None:
    seen: list[ReductionRecord] = []

    class Watcher:
        def reduction(self, record: ReductionRecord) -> None:
            seen.append(record)

        def ignore(self, record: object) -> None:
            pass

        placement = variable_created = step_began = step_ended = collective = ignore

    two.observe(Watcher())
    two.reduce("mean", two_and_two(two), axis=None)
    two.reduce("sum", two_and_two(two), axis=0)
    assert [shown(part) for part in seen[0].inputs] == [[[1, 2], [3, 4]], [[2, 2], [3, 4]]]
    assert (seen[0].denominator, shown(seen[0].result)) == (2, MEAN["values"])
    assert (np.shape(seen[1].inputs[0]), shown(seen[1].result)) == ((5, 2), [9, 12])


@pytest.mark.parametrize("dense_shape", [[5, 2], np.asarray([5, 2])], ids=["list", "array"])
def test_a_dense_shape_may_be_any_sequence_of_ints(dense_shape: Any) -> None:
    assert rows([[1, 2]], [1], dense_shape).dense_shape == (5, 2)
    with pytest.raises(InvalidTypeError, match=r"pass a tuple of ints"):
        rows([[1, 2]], [1], "five")


def test_integers_that_would_be_wrapped_are_refused(two: dist.MirroredStrategy) -> None:
    value = dist.PerReplica.from_components([np.asarray([2**40]), np.asarray([1])])
    if jax.config.jax_enable_x64:  # type: ignore[attr-defined]  # made at run time
        assert shown(two.reduce("sum", value, axis=None)) == [2**40 + 1]
        return
    attempts: list[Callable[[], Any]] = [lambda: two.reduce("sum", value, axis=None), lambda: two.gather(value, axis=0)]
    for combine in attempts:
        with pytest.raises(InvalidValueError, match=r"does not fit int32"):
            combine()
