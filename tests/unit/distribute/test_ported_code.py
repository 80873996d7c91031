"""What a program that comes from TensorFlow meets: results and errors as recorded from TensorFlow 2.21."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.errors import InvalidTypeError, InvalidValueError


@pytest.mark.parametrize("aggregation", ["none", dist.VariableAggregation.ONLY_FIRST_REPLICA])
def test_an_aggregation_that_reduces_nothing_has_no_reduce_operation(aggregation: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"stands for no reduce operation; use 'sum' or 'mean'"):
        dist.ReduceOp.from_variable_aggregation(aggregation)


def test_aggregations_that_reduce_have_a_reduce_operation() -> None:
    assert dist.ReduceOp.from_variable_aggregation(dist.VariableAggregation.SUM) is dist.ReduceOp.SUM
    assert dist.ReduceOp.from_variable_aggregation("mean") is dist.ReduceOp.MEAN


@pytest.mark.parametrize("devices", [1, 2])
def test_local_results_of_a_variable_that_is_held_once_give_the_variable(devices: int) -> None:
    central = dist.CentralStorageStrategy(jax.devices()[:devices], jax.devices()[0])
    for strategy in (central, dist.OneDeviceStrategy(jax.devices()[0]), dist.get_strategy()):
        with strategy.scope():
            variable = dist.Variable(1.0, aggregation="sum")
        assert strategy.local_results(variable) == (variable,)
        replicas = strategy.num_replicas_in_sync
        assert strategy.local_results([variable]) == ([variable],) * replicas
        assert strategy.local_results({"v": variable, "n": 3}) == ({"v": variable, "n": 3},) * replicas


def test_local_results_of_a_mirrored_variable_are_its_copies(two: dist.MirroredStrategy) -> None:
    with two.scope():
        variable = dist.Variable(1.0, aggregation="sum")
    assert [float(copy) for copy in two.local_results(variable)] == [1, 1]
    assert [float(nest["v"]) for nest in two.local_results({"v": variable})] == [1, 1]


def _merge(replica: Any) -> Any:
    return dist.merge_call(lambda strategy, x: x, args=(replica * 1.0,))


def _merge_nothing(replica: Any) -> Any:
    return dist.merge_call(lambda strategy: None)


def _merge_a_constant(replica: Any) -> Any:
    return dist.merge_call(lambda strategy, x: x, args=(1.0,))


def _update(replica: Any) -> Any:
    strategy = dist.get_strategy()
    (variable,) = strategy.own_variables()
    return strategy.extended.update(variable, lambda copy: copy.assign_add(1.0))


@pytest.mark.parametrize("call", [_merge, _merge_nothing, _merge_a_constant, _update])
@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("executor", ["auto", "mpmd", "spmd", "pmap", "central"])
def test_a_merge_that_only_some_replicas_call_is_refused(executor: str, who: int, call: Callable[[Any], Any]) -> None:
    devices = jax.devices()[:2]
    is_central = executor == "central"
    strategy: dist.Strategy = (
        dist.CentralStorageStrategy(devices) if is_central else dist.MirroredStrategy(devices, executor=executor)
    )
    with strategy.scope():
        variable = dist.Variable(0.0, aggregation="sum")

    def step() -> None:
        replica = dist.get_replica_context().replica_id_in_sync_group  # type: ignore[union-attr]  # in run
        if replica == who:
            call(jnp.asarray(replica))

    # spmd and pmap have one program for all replicas, in which the number of the replica is not known
    error = RuntimeError if executor not in ("spmd", "pmap") else InvalidValueError
    with pytest.raises(error, match=r"merge_call|replica"):
        strategy.run(step)
    assert float(variable) == 0


@pytest.mark.parametrize("executor", ["auto", "mpmd"])
def test_a_second_merge_on_one_replica_is_refused(executor: str) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2], executor=executor)

    def step() -> None:
        replica = dist.get_replica_context().replica_id_in_sync_group  # type: ignore[union-attr]  # in run
        dist.merge_call(lambda strategy: None)
        if replica == 1:
            dist.merge_call(lambda strategy: None)

    with pytest.raises(RuntimeError, match=r"replica 0 at the end of the step, replica 1 at merge_call"):
        strategy.run(step)


def drained(iterator: Any) -> list[Any]:
    """All steps, by replica."""
    steps: list[Any] = []
    while True:
        try:
            step = iterator.get_next()
        except LookupError:
            return steps
        values = step.values if isinstance(step, dist.PerReplica) else (step,)
        steps.append([np.asarray(value).tolist() for value in values])


V1: dict[str, Callable[[int], Any]] = {
    "mirrored": lambda n: dist.v1.MirroredStrategy(jax.devices()[:n]),
    "central": lambda n: dist.v1.CentralStorageStrategy(jax.devices()[:n], jax.devices()[0]),
    "contrib": lambda n: dist.contrib.MirroredStrategy(jax.devices()[:n]),
}


@pytest.mark.parametrize("kind", V1)
@pytest.mark.parametrize(
    ("rows", "replicas", "drop_remainder", "expected"),
    [
        (6, 2, False, [[[0, 1], [2, 3]]]),
        (6, 2, True, [[[0, 1], [2, 3]]]),
        (5, 2, False, [[[0, 1], [2, 3]]]),
        (7, 2, False, [[[0, 1], [2, 3]], [[4, 5], [6]]]),
        (7, 2, True, [[[0, 1], [2, 3]]]),
        (2, 2, False, []),
        (0, 2, False, []),
        (6, 3, False, [[[0, 1], [2, 3], [4, 5]]]),
        (7, 3, False, [[[0, 1], [2, 3], [4, 5]]]),
        (3, 1, False, [[0, 1], [2]]),
    ],
)
def test_an_input_function_ends_where_a_replica_has_no_batch(
    kind: str, rows: int, replicas: int, drop_remainder: bool, expected: list[Any]
) -> None:
    strategy: Any = V1[kind](replicas)
    iterator = strategy.make_input_fn_iterator(
        lambda context: dist.Dataset.range(rows).batch(2, drop_remainder=drop_remainder)
    )
    steps = expected if replicas > 1 else [[one] for one in expected]
    assert drained(iterator) == steps
    assert drained(iterator) == []
    iterator.initialize()
    assert drained(iterator) == steps


def test_an_input_function_that_makes_batches_ends_where_a_replica_has_none() -> None:
    strategy = dist.v1.MirroredStrategy(jax.devices()[:2])
    batches = iter([np.asarray([1, 2]), np.asarray([3]), np.asarray([4])])
    assert drained(strategy.make_input_fn_iterator(lambda context: lambda: next(batches))) == [[[1, 2], [3]]]


def test_a_numpy_dataset_of_a_list_of_numbers_has_them_as_rows() -> None:
    strategy = dist.v1.MirroredStrategy(jax.devices()[:2])
    assert [int(row) for row in strategy.make_numpy_dataset([1, 2, 3])] == [1, 2, 3]
    assert drained(strategy.make_dataset_iterator(strategy.make_numpy_dataset([1, 2, 3]).batch(2))) == [
        [[1], [2]],
        [[3], []],
    ]


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (7, InvalidValueError, "no rows"),
        ("abc", InvalidValueError, "no rows"),
        (None, InvalidValueError, "no rows"),
        ([[1], [2, 3]], InvalidValueError, "differ in shape"),
        ([np.ones(2), np.ones(3)], InvalidValueError, "differ in shape"),
        ([{"a": 1}], InvalidTypeError, "neither numbers nor texts"),
        ([object()], InvalidTypeError, "neither numbers nor texts"),
    ],
)
def test_a_numpy_dataset_of_something_else_is_refused_by_name(rows: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        dist.v1.MirroredStrategy(jax.devices()[:2]).make_numpy_dataset(rows)


@pytest.mark.parametrize("iterator", [5, [1, 2], "abc"])
def test_experimental_run_takes_an_iterator(iterator: Any) -> None:
    with pytest.raises(InvalidTypeError, match=r"for an iterator; pass what make_dataset_iterator"):
        dist.v1.MirroredStrategy(jax.devices()[:2]).experimental_run(lambda x: x, iterator)


def test_arguments_of_another_kind_are_refused_by_name(two: dist.MirroredStrategy) -> None:
    value = two.distribute_values_from_function(lambda c: np.float32(1))
    ops: Any = dist.ReductionToOneDevice
    pairs: Any = [value]
    attempts: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (
            lambda: two.run(lambda x: dist.merge_call(_add_all, args=x), (value,)),
            InvalidTypeError,
            "args must be a tuple",
        ),
        (lambda: ops().batch_reduce("sum", pairs), InvalidValueError, "takes pairs"),
        (lambda: two.extended.batch_reduce_to("sum", pairs), InvalidValueError, "takes pairs"),
        (lambda: dist.MirroredStrategy(jax.devices()[:2], cross_device_ops=ops), InvalidTypeError, "pass an instance"),
        (lambda: two.reduce("sum", None, axis=None), InvalidValueError, "None has no sum"),
    ]
    for attempt, error, message in attempts:
        with pytest.raises(error, match=message):
            attempt()


def _add_all(strategy: dist.Strategy, x: Any) -> Any:
    return strategy.reduce("sum", x, axis=None)


def test_a_mirrored_value_reads_as_the_value(two: dist.MirroredStrategy) -> None:
    with two.scope():
        variable = dist.Variable(jnp.zeros(2), aggregation="sum")
    value = two.distribute_values_from_function(lambda c: np.asarray([1.0, 2.0], np.float32))
    mirrored = two.extended.reduce_to("sum", value, variable)
    assert ((mirrored + 1).tolist(), (2 * mirrored).tolist(), float(mirrored[0])) == ([3, 5], [4, 8], 2)
    assert (mirrored.shape, mirrored.dtype, mirrored.numpy().tolist()) == ((2,), np.float32, [2, 4])
    assert [float(one) for one in mirrored] == [2, 4]
    variable.assign(mirrored)
    assert [float(one) for one in variable] == [2, 4]


def test_a_nest_is_reduced_to_a_destination_leaf_by_leaf(two: dist.MirroredStrategy) -> None:
    value = two.distribute_values_from_function(lambda c: np.float32(c.replica_id_in_sync_group))
    reduced = two.extended.reduce_to("sum", {"a": value, "b": [value]}, "CPU:0")
    assert (float(reduced["a"]), float(reduced["b"][0])) == (1, 1)


def test_a_per_replica_value_is_no_array(two: dist.MirroredStrategy) -> None:
    value = two.distribute_values_from_function(lambda c: np.float32(c.replica_id_in_sync_group))
    with pytest.raises(InvalidTypeError, match=r"has one component per replica and is no array"):
        np.asarray(value)


def test_values_of_another_number_of_replicas_are_not_combined(two: dist.MirroredStrategy) -> None:
    three = dist.PerReplica.from_components([np.ones(1, np.float32)] * 3)
    attempts: list[Callable[[], Any]] = [
        lambda: two.reduce("sum", three, axis=None),
        lambda: two.gather(three, axis=0),
        lambda: two.extended.reduce_to("sum", three, "CPU:0"),
    ]
    for attempt in attempts:
        with pytest.raises(ValueError, match=r"was made for 3 replicas, this strategy has 2"):
            attempt()


@pytest.mark.parametrize("axis", [None, (0,), 0.0, "0", True])
def test_values_are_gathered_along_one_axis(two: dist.MirroredStrategy, axis: Any) -> None:
    value = two.distribute_values_from_function(lambda c: np.zeros(2, np.float32))
    with pytest.raises(InvalidTypeError, match=r"gathered along one axis, an int"):
        two.gather(value, axis=axis)
    with pytest.raises(InvalidTypeError, match=r"gathered along one axis, an int"):
        two.run(lambda x: dist.all_gather(x, axis), (value,))


def test_components_of_different_dtypes_are_not_gathered(two: dist.MirroredStrategy) -> None:
    value = dist.PerReplica.from_components([np.ones(1, np.float32), np.ones(1, np.int32)])
    with pytest.raises(InvalidTypeError, match=r"different dtypes can't be put together: float32, int32"):
        two.gather(value, axis=0)


def test_copies_that_stay_equal_take_no_components_of_their_own(two: dist.MirroredStrategy) -> None:
    with two.scope():
        variable = dist.Variable(0.0, aggregation="sum")
    value = two.distribute_values_from_function(lambda c: np.float32(c.replica_id_in_sync_group))

    def update(strategy: dist.Strategy, x: Any) -> None:
        strategy.extended.update(variable, lambda copy, own: copy.assign_add(own), args=(x,))

    attempts: list[Callable[[], Any]] = [
        lambda: update(two, value),
        lambda: two.run(lambda x: dist.merge_call(update, args=(x,)), (value,)),
        lambda: two.run(lambda x: update(two, x), (value,)),
        lambda: two.run(lambda x: dist.merge_call(lambda s, x: variable.assign(x), args=(x,)), (value,)),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidValueError, match=r"whose copies must stay equal.* reduce it first"):
            attempt()
    assert [float(copy) for copy in variable.values] == [0, 0]


@pytest.mark.parametrize("executor", ["spmd", "pmap"])
def test_python_that_needs_a_replicas_number_is_told_the_way_out_where_one_program_was_asked_for(executor: str) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2], executor=executor)

    def step() -> Any:
        number = dist.get_replica_context().replica_id_in_sync_group  # type: ignore[union-attr]  # in run
        return jnp.float32(1 if number == 0 else 2)

    with pytest.raises(InvalidValueError, match=r"executor='\w+' traces a step once.*jax\.lax\.cond"):
        strategy.run(step)
