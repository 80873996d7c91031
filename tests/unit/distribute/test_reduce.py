from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import drumline.distribute as dist

pytestmark = pytest.mark.x64

STRATEGIES = {n: dist.MirroredStrategy(jax.devices()[:n]) for n in (1, 2, 3, 8)}
DTYPES = ("float32", "float16", "int8", "uint8", "int16", "int32")


def per_replica(*components: Any, dtype: Any = None) -> dist.PerReplica:
    return dist.PerReplica.from_components([np.asarray(value, dtype) for value in components])


@st.composite
def split_batches(draw: st.DrawFn) -> tuple[int, list[np.ndarray[Any, Any]], Any]:
    """(replicas, one array per replica, axis): ragged along the reduced axes only."""
    replicas = draw(st.sampled_from(sorted(STRATEGIES)))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    rank = draw(st.integers(1, 3))
    axis = draw(st.sampled_from([None, 0, -1, (0,), tuple(range(rank))]))
    axes = () if axis is None else {a % rank for a in (axis if isinstance(axis, tuple) else (axis,))}
    fixed = [draw(st.integers(1, 3)) for _ in range(rank)]
    shapes = [tuple(draw(st.integers(0, 4)) if i in axes else n for i, n in enumerate(fixed)) for _ in range(replicas)]
    values: Any = st.integers(-5, 5) if dtype.kind == "i" else st.integers(0, 5)
    arrays = [draw(hnp.arrays(dtype, shape, elements=values)) for shape in shapes]
    return replicas, arrays, axis


def expected_reduction(op: str, arrays: list[np.ndarray[Any, Any]], axis: Any) -> np.ndarray[Any, Any]:
    wide = [array.astype(np.float64) for array in arrays]
    axes = () if axis is None else axis
    total = sum(array.sum(axis=axes) if axis is not None else array for array in wide)
    if arrays[0].dtype.kind in "iu":
        total = np.asarray(total).astype(np.int64).astype(arrays[0].dtype).astype(np.float64)  # small ones wrap
    if op == "sum":
        return np.asarray(total)
    axes = tuple(a % wide[0].ndim for a in (axes if isinstance(axes, tuple) else (axes,)))
    count = sum(np.prod([array.shape[a] for a in axes]) if axes else 1 for array in wide)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / np.float64(count))


@settings(deadline=None, max_examples=80)
@given(split_batches(), st.sampled_from(["sum", "mean"]))
def test_reduce_equals_float64_numpy_on_ragged_splits(case: tuple[int, list[Any], Any], op: str) -> None:
    replicas, arrays, axis = case
    strategy = STRATEGIES[replicas]
    value: Any = dist.PerReplica.from_components(arrays)
    result = np.asarray(strategy.reduce(op, value, axis))
    expected = expected_reduction(op, arrays, axis)
    assert result.shape == expected.shape
    np.testing.assert_allclose(
        result.astype(np.float64), expected, rtol=2e-3 if arrays[0].dtype == np.float16 else 1e-6
    )


@settings(deadline=None, max_examples=40)
@given(split_batches())
def test_gather_equals_numpy_concatenate(case: tuple[int, list[Any], Any]) -> None:
    replicas, arrays, axis = case
    along = 0 if axis is None or isinstance(axis, tuple) else axis
    if isinstance(axis, tuple) and len(axis) > 1:
        return
    result = STRATEGIES[replicas].gather(dist.PerReplica.from_components(arrays), axis=along)
    np.testing.assert_array_equal(np.asarray(result), np.concatenate(arrays, along))


def test_a_mean_over_the_batch_weighs_rows_not_replicas(two: dist.MirroredStrategy) -> None:
    ragged = per_replica([0, 1, 2, 3], [4, 5], dtype="float32")
    assert two.reduce("mean", ragged, axis=0) == 2.5
    assert two.reduce("sum", ragged, axis=0) == 15
    assert two.reduce("sum", ragged, axis=[0]) == 15


def test_the_mean_of_nothing_is_nan_and_its_sum_zero(two: dist.MirroredStrategy) -> None:
    empty = per_replica([], [], dtype="float32")
    assert np.isnan(two.reduce("mean", empty, axis=0))
    assert two.reduce("sum", empty, axis=0) == 0


@pytest.mark.parametrize(
    ("dtype", "x64", "mean_dtype"),
    [
        ("float16", False, "float16"),
        ("bfloat16", False, "bfloat16"),
        ("float32", False, "float32"),
        ("int8", False, "float32"),
        ("uint8", False, "float32"),
        ("int16", False, "float32"),
        ("uint16", False, "float32"),
        ("int32", False, "float32"),
        ("int32", True, "float64"),
        ("int64", True, "float64"),
        ("int8", True, "float32"),
        ("float32", True, "float32"),
        ("float64", True, "float64"),
    ],
)
@pytest.mark.parametrize("is_ragged", [False, True])
def test_a_sum_keeps_the_dtype_and_a_mean_has_its_own(
    two: dist.MirroredStrategy, dtype: str, x64: bool, mean_dtype: str, is_ragged: bool
) -> None:
    with jax.enable_x64(x64):
        value = per_replica([1, 2], [4] if is_ragged else [4, 5], dtype=jnp.dtype(dtype))
        assert two.reduce("sum", value, axis=0).dtype == jnp.dtype(dtype)
        assert two.reduce("mean", value, axis=0).dtype == jnp.dtype(mean_dtype)
        assert two.reduce("mean", per_replica(1, 4, dtype=jnp.dtype(dtype)), axis=None).dtype == jnp.dtype(mean_dtype)


def test_integer_sums_wrap_before_the_mean_divides(two: dist.MirroredStrategy) -> None:
    value = per_replica(100, 100, dtype="int8")
    assert two.reduce("sum", value, axis=None) == -56
    assert two.reduce("mean", value, axis=None) == -28


def test_a_nest_is_reduced_leaf_by_leaf(two: dist.MirroredStrategy) -> None:
    value = {"a": per_replica([1.0], [3.0, 5.0]), "b": (per_replica([1.0, 2.0], [3.0]),)}
    result = two.reduce("mean", value, axis=0)
    assert (float(result["a"]), float(result["b"][0])) == (3, 2)


def test_plain_values_are_the_same_on_every_replica(two: dist.MirroredStrategy) -> None:
    assert two.reduce("mean", 5.0, axis=None) == 5
    assert two.reduce("mean", np.asarray([1, 3], np.float32), axis=0) == 2
    assert two.reduce("sum", np.asarray([1, 3], np.float32), axis=0) == 8
    with pytest.raises(ValueError, match=r"the sum over 2 replicas of a plain value"):
        two.reduce("sum", 1, axis=None)
    one = STRATEGIES[1]
    assert one.reduce("sum", 5, axis=None) == 5


def test_a_mirrored_result_of_a_step_is_reduced_like_a_plain_value(two: dist.MirroredStrategy) -> None:
    loss = two.run(lambda: dist.mirrored(dist.all_reduce("sum", jnp.float32(2))))
    assert float(two.reduce("mean", loss, axis=None)) == 4


def test_variables_can_be_reduced(two: dist.MirroredStrategy) -> None:
    with two.scope():
        mirrored = dist.Variable(np.asarray([3, 5], np.float32), aggregation="mean")
        local = dist.Variable(1.0, synchronization="on_read", aggregation="mean")
    two.run(lambda: local.assign_add(jnp.float32(dist.get_replica_context().replica_id_in_sync_group)))  # type: ignore[union-attr]
    assert two.reduce("mean", mirrored, axis=None).tolist() == [3, 5]
    assert two.reduce("sum", local, axis=None) == 3
    with two.scope():
        equal = dist.Variable(np.asarray([3, 5], np.int32))
    assert two.reduce("mean", equal, axis=None).tolist() == [3, 5]
    with pytest.raises(ValueError, match="may be meant once or 2 times"):
        two.reduce("sum", equal, axis=None)


@settings(deadline=None, max_examples=30)
@given(hnp.arrays(np.float32, 16, elements=st.floats(-1e3, 1e3, width=32).filter(lambda x: abs(x) > 1e-30 or x == 0)))
def test_a_mean_is_rounded_as_ieee_division_is(column: np.ndarray[Any, Any]) -> None:
    strategy = STRATEGIES[3]
    value = strategy.distribute_values_from_function(
        lambda c: column if c.replica_id_in_sync_group == 0 else column * 0
    )
    expected = (column / np.float32(3)).tolist()
    assert strategy.reduce("mean", value, axis=None).tolist() == expected
    inside = strategy.run(lambda x: dist.all_reduce("mean", x), (value,))
    assert inside.values[0].tolist() == expected


@pytest.mark.parametrize(
    ("value", "axis", "error", "text"),
    [
        (([[1.0, 2.0]], [1.0, 2.0]), None, ValueError, r"different rank.*float32\[1, 2\], float32\[2\]"),
        (([1.0, 2.0], [3.0]), None, ValueError, r"float32\[2\], float32\[1\]; pass the axis they differ in"),
        (([1.0], [2.0]), 1, ValueError, "axis=1 is out of range for a value of rank 1"),
        ((1.0, 2.0), 0, ValueError, "axis=0 is out of range for a value of rank 0"),
        (([1.0], [2.0]), "0", TypeError, "an axis is None, an int or a tuple"),
        (([[1.0]], [[2.0]]), (0, -2), ValueError, "names an axis twice"),
    ],
)
def test_values_that_cannot_be_reduced_say_why(
    two: dist.MirroredStrategy, value: Any, axis: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        two.reduce("sum", per_replica(*value, dtype="float32"), axis=axis)


def test_bools_and_strings_have_no_sum_and_no_mean(two: dist.MirroredStrategy) -> None:
    for value in (per_replica([True], [False]), dist.PerReplica.from_components(["a", "b"])):
        for axis in (0, None):
            with pytest.raises(ValueError, match=r"has no sum; cast it to a number first") as caught:
                two.reduce("sum", value, axis=axis)
            assert isinstance(caught.value, TypeError)  # what TensorFlow raises where there is an axis
            with pytest.raises(TypeError, match=r"has no mean"):
                two.reduce("mean", value, axis=axis)


def test_different_dtypes_and_unknown_operations_are_refused(two: dist.MirroredStrategy) -> None:
    with pytest.raises(TypeError, match=r"different dtypes.*int32.*float32"):
        two.reduce("sum", dist.PerReplica.from_components([np.int32(1), np.float32(1)]), axis=None)
    with pytest.raises(ValueError, match=r"'max' is no ReduceOp"):
        two.reduce("max", per_replica(1.0, 2.0), axis=None)
    with pytest.raises(TypeError, match=r"reduce needs axis"):
        two.reduce("sum", per_replica(1.0, 2.0))


def test_gathering_what_does_not_fit_together_is_refused(two: dist.MirroredStrategy) -> None:
    with pytest.raises(ValueError, match=r"may differ along axis 0 only.*\[1, 2\], \[1, 3\]"):
        two.gather(per_replica([[1, 2]], [[1, 2, 3]]), axis=0)
    with pytest.raises(ValueError, match=r"different rank"):
        two.gather(per_replica([1], [[1]]), axis=0)
    with pytest.raises(ValueError, match=r"axis=1 is out of range"):
        two.gather(per_replica([1], [1]), axis=1)
    with pytest.raises(ValueError, match=r"scalars can't be gathered"):
        two.gather(per_replica(1, 2), axis=0)


def test_gather_keeps_plain_values_strings_and_nests(two: dist.MirroredStrategy) -> None:
    assert two.gather(5, axis=0) == 5
    words = dist.PerReplica.from_components([np.array(["a", "b"]), np.array(["c"])])
    assert two.gather({"w": words}, axis=0)["w"].tolist() == ["a", "b", "c"]


def test_local_results_gives_this_processes_components(two: dist.MirroredStrategy) -> None:
    value = per_replica(1, 2)
    assert [int(v) for v in two.local_results(value)] == [1, 2]
    assert two.local_results(7) == (7,)
    assert two.local_results({"a": value, "b": 5}) == ({"a": 1, "b": 5}, {"a": 2, "b": 5})
    assert two.local_results([1, 2]) == ([1, 2], [1, 2])
    with two.scope():
        variable = dist.Variable(3.0, aggregation="mean")
    assert [float(v) for v in two.local_results(variable)] == [3, 3]
    central = dist.CentralStorageStrategy(jax.devices()[:2])
    with central.scope():
        single = dist.Variable(3.0, aggregation="mean")
    assert central.local_results(single) == (single,)


def test_values_from_a_function_are_wrapped_leaf_by_leaf(three: dist.MirroredStrategy) -> None:
    made = three.distribute_values_from_function(
        lambda context: {"id": context.replica_id_in_sync_group, "n": (np.arange(context.num_replicas_in_sync),)}
    )
    assert made["id"].values == (0, 1, 2)
    assert [v.tolist() for v in made["n"][0].values] == [[0, 1, 2]] * 3
    shapes = three.distribute_values_from_function(lambda c: np.ones(c.replica_id_in_sync_group + 1))
    assert shapes.rows == (1, 2, 3)
    with pytest.raises(ValueError, match=r"different structures"):
        three.distribute_values_from_function(lambda c: (1,) * c.replica_id_in_sync_group)
    assert STRATEGIES[1].distribute_values_from_function(lambda c: 5).values == (5,)
    assert dist.OneDeviceStrategy("CPU:0").distribute_values_from_function(lambda c: 5) == 5
    assert dist.get_strategy().distribute_values_from_function(lambda c: 5) == 5


def test_results_of_even_and_ragged_steps_can_be_added_up(two: dist.MirroredStrategy) -> None:
    even, ragged = per_replica([1.0, 2.0], [3.0, 4.0]), per_replica([1.0, 2.0], [3.0])
    total = two.reduce("sum", two.run(lambda x: x, args=(even,)), axis=0)
    total += two.reduce("sum", two.run(lambda x: x, args=(ragged,)), axis=0)
    total += two.reduce("sum", two.run(lambda x: x.sum(), args=(ragged,)), axis=None)
    total += two.run(lambda x: dist.mirrored(dist.all_reduce("sum", x.sum())), args=(ragged,))
    assert float(total) == 28
    assert two.gather(even, axis=0).sharding.is_fully_replicated
