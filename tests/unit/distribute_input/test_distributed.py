from typing import Any

import grain
import jax
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.input.spec import ArraySpec, PerReplicaSpec


def mirrored(replicas: int) -> dist.MirroredStrategy:
    return dist.MirroredStrategy(jax.devices()[:replicas])


def central(replicas: int) -> Any:
    from drumline.distribute.strategies.central_storage import CentralStorageStrategy

    return CentralStorageStrategy(jax.devices()[:replicas])


def rows(step: Any) -> list[list[Any]]:
    return [np.asarray(value).tolist() for value in step.values]


def steps(strategy: Any, dataset: Any, options: dist.InputOptions | None = None) -> list[list[list[Any]]]:
    return [rows(step) for step in strategy.distribute_dataset(dataset, options)]


def test_by_default_each_batch_is_cut_on_its_own() -> None:
    assert steps(mirrored(3), dist.Dataset.range(10).batch(4)) == [
        [[0, 1], [2, 3], []],
        [[4, 5], [6, 7], []],
        [[8], [9], []],
    ]


@pytest.mark.parametrize("policy", ["off", "file", "hint"])
def test_other_policies_cycle_sizes_across_batches(policy: str) -> None:
    dataset = dist.Dataset.range(10).batch(4).with_auto_shard_policy(policy)
    assert steps(mirrored(3), dataset) == [[[0, 1], [2], [3]], [[4, 5], [6], [7]], [[8, 9], [], []]]


def test_cycled_sizes_let_a_partial_batch_merge_with_the_next_epoch() -> None:
    dataset = dist.Dataset.range(3).batch(2).repeat(2).with_auto_shard_policy("off")
    assert steps(mirrored(2), dataset) == [[[0], [1]], [[2], [0]], [[1], [2]]]


def test_a_batch_of_unknown_size_is_cut_on_its_own_under_every_policy() -> None:
    dataset = dist.Dataset.range(9).batch(4).map(lambda x: x + 1).with_auto_shard_policy("off")
    assert steps(mirrored(3), dataset)[-1] == [[9], [], []]


def test_central_storage_drops_and_counts_an_incomplete_cycle() -> None:
    iterator = iter(central(3).distribute_dataset(dist.Dataset.range(10).batch(4).with_auto_shard_policy("off")))
    assert len(list(iterator)) == 2
    assert iterator.dropped_rows == 2


def test_the_last_batch_of_the_digits_example_leaves_the_last_replica_fewer_rows() -> None:
    x, y = np.zeros((1437, 64), np.float32), np.zeros(1437, np.int32)
    batches = list(mirrored(8).distribute_dataset(dist.Dataset.from_tensor_slices((x, y)).batch(256)))
    assert [images.rows for images, _ in batches] == [(32,) * 8] * 5 + [(20,) * 7 + (17,)]
    assert sum(sum(labels.rows) for _, labels in batches) == 1437


def test_regular_batches_are_one_sharded_array_and_ragged_ones_lie_on_their_devices() -> None:
    strategy = mirrored(2)
    full, last = strategy.distribute_dataset(dist.Dataset.range(7).batch(4))
    assert full.stacked is not None
    assert full.stacked.sharding.is_equivalent_to(strategy.batch_sharding, full.stacked.ndim)
    assert [next(iter(part.devices())) for part in last.values] == jax.devices()[:2]


def test_an_empty_replica_gets_zero_rows_of_the_right_type() -> None:
    dataset = dist.Dataset.from_tensor_slices({"x": np.ones((1, 3), np.float16)}).batch(2)
    (step,) = mirrored(2).distribute_dataset(dataset)
    assert step["x"].values[1].shape == (0, 3)
    assert step["x"].values[1].dtype == np.float16


def test_batches_without_rows_make_no_step() -> None:
    assert steps(mirrored(2), [np.ones(2), np.ones(0), np.ones(1)]) == [[[1], [1]], [[1], []]]


@pytest.mark.parametrize(
    "source",
    [
        [np.array([1, 2, 3]), np.array([4])],
        ([1, 2, 3], [4]),
        (np.array(batch) for batch in ([1, 2, 3], [4])),
        lambda: iter([np.array([1, 2, 3]), np.array([4])]),
        grain.MapDataset.range(1, 5).batch(3),
        grain.MapDataset.range(1, 5).batch(3).to_iter_dataset(),
    ],
    ids=["list", "tuple of lists", "generator", "function", "grain map", "grain iter"],
)
def test_any_iterable_of_batches_can_be_distributed(source: Any) -> None:
    if isinstance(source, tuple):
        source = list(source)
    assert steps(mirrored(2), source) == [[[1, 2], [3]], [[4], []]]


def test_rows_of_arrays_given_directly_are_divided_along_their_first_axis() -> None:
    assert steps(mirrored(2), np.arange(6).reshape(2, 3)) == [[[0, 1], [2]], [[3, 4], [5]]]


def test_strings_stay_on_the_host() -> None:
    (step,) = mirrored(2).distribute_dataset([np.array(["a", "b", "c"])])
    assert rows(step) == [["a", "b"], ["c"]]


def test_with_one_replica_nothing_is_wrapped_or_cut() -> None:
    assert [value.tolist() for value in mirrored(1).distribute_dataset(dist.Dataset.range(3).batch(2))] == [[0, 1], [2]]
    assert [int(value) for value in mirrored(1).distribute_dataset(dist.Dataset.range(2))] == [0, 1]


def test_batches_can_stay_numpy_arrays() -> None:
    options = dist.InputOptions(fetch_to_device=False)
    (step,) = mirrored(2).distribute_dataset(dist.Dataset.range(4).batch(4), options)
    assert all(isinstance(value, np.ndarray) for value in step.values)


def test_each_iteration_starts_over() -> None:
    dataset = mirrored(2).distribute_dataset(dist.Dataset.range(4).batch(2))
    assert [rows(step) for step in dataset] == [rows(step) for step in dataset]


def test_steps_can_be_folded() -> None:
    dataset = mirrored(2).distribute_dataset(dist.Dataset.range(5).batch(2))
    assert dataset.reduce(0, lambda total, step: total + sum(step.rows)) == 5


def test_the_end_is_an_error_or_an_empty_optional() -> None:
    iterator = iter(mirrored(2).distribute_dataset(dist.Dataset.range(2).batch(2)))
    assert iterator.get_next_as_optional().has_value()
    empty = iterator.get_next_as_optional()
    assert not empty.has_value()
    with pytest.raises(LookupError, match="ask has_value"):
        empty.get_value()
    with pytest.raises(LookupError, match="no further step"):
        iterator.get_next()
    with pytest.raises(StopIteration):
        next(iterator)


def test_element_spec_is_per_replica() -> None:
    int64 = np.dtype(np.int64)
    dataset = dist.Dataset.range(16).batch(4, drop_remainder=True)
    assert mirrored(2).distribute_dataset(dataset).element_spec == PerReplicaSpec((ArraySpec((2,), int64),) * 2)
    assert mirrored(3).distribute_dataset(dataset).element_spec == PerReplicaSpec((ArraySpec((None,), int64),) * 3)
    assert mirrored(1).distribute_dataset(dataset).element_spec == ArraySpec((4,), int64)


def test_cardinality_counts_global_steps() -> None:
    assert mirrored(2).distribute_dataset(dist.Dataset.range(5).batch(2)).cardinality == 3


@pytest.mark.parametrize(
    ("dataset", "text"),
    [
        (dist.Dataset.range(4), "a scalar of int64 has no rows to divide over 2 replicas; batch the dataset first"),
        (dist.Dataset.range(4).map(lambda x: x), r"shape \(\) has no rows to divide; batch the dataset first"),
        (dist.Dataset.from_tensor_slices((np.ones((2, 3)), np.ones((2, 4)))), "have 3 and 4 rows"),
    ],
)
def test_what_has_no_rows_cannot_be_divided(dataset: dist.Dataset, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        list(mirrored(2).distribute_dataset(dataset))


def test_rows_of_different_shape_cannot_share_a_step() -> None:
    spec = ArraySpec((2, None), np.dtype(float))
    dataset = (
        dist.Dataset.from_generator([np.ones((2, 3)), np.ones((2, 4))], spec).skip(0).with_auto_shard_policy("off")
    )
    odd = dist.Dataset.from_generator([np.ones((1, 3)), np.ones((1, 4))], spec).with_auto_shard_policy("off")
    assert [step.rows for step in mirrored(2).distribute_dataset(dataset)] == [(1, 1), (1, 1)]
    with pytest.raises(ValueError, match=r"shape \(1, 3\) and \(1, 4\) can't share a step.*policy DATA"):
        list(mirrored(2).distribute_dataset(odd))


def test_a_64_bit_integer_that_does_not_fit_is_refused() -> None:
    with jax.enable_x64(False), pytest.raises(ValueError, match=f"{2**40} does not fit int32.*jax_enable_x64"):
        list(mirrored(2).distribute_dataset([np.array([1, 2**40])]))


def test_a_distributed_dataset_cannot_be_transformed_or_distributed_again() -> None:
    strategy = mirrored(2)
    dataset = strategy.distribute_dataset(dist.Dataset.range(4).batch(2))
    with pytest.raises(AttributeError, match="transform the dataset first"):
        dataset.map(lambda x: x)
    with pytest.raises(AttributeError, match="already distributed"):
        strategy.distribute_dataset(dataset)


def test_reading_inside_a_step_is_refused() -> None:
    strategy = mirrored(2)
    iterator = iter(strategy.distribute_dataset(dist.Dataset.range(4).batch(2)))
    with pytest.raises(ValueError, match="take the batch outside"):
        strategy.run(lambda: next(iterator))


def test_from_a_function_every_replica_takes_a_whole_batch() -> None:
    contexts = []

    def dataset_fn(context: dist.InputContext) -> dist.Dataset:
        contexts.append(context)
        return dist.Dataset.range(5).batch(context.get_per_replica_batch_size(4))

    dataset = mirrored(2).distribute_datasets_from_function(dataset_fn)
    assert [rows(step) for step in dataset] == [[[0, 1], [2, 3]], [[4], []]]
    assert contexts == [dist.InputContext(1, 0, 2)]


def test_from_a_function_static_shapes_are_kept_and_the_dropped_rows_counted() -> None:
    dataset = mirrored(2).distribute_datasets_from_function(
        lambda _: dist.Dataset.range(7).batch(2, drop_remainder=True)
    )
    iterator = iter(dataset)
    assert [rows(step) for step in iterator] == [[[0, 1], [2, 3]]]
    assert iterator.dropped_rows == 2


def test_from_a_function_batches_may_differ_in_shape() -> None:
    dataset = mirrored(2).distribute_datasets_from_function(lambda _: iter([np.ones((1, 2)), np.ones((2, 3))]))
    assert [[value.shape for value in step.values] for step in dataset] == [[(1, 2), (2, 3)]]


def test_per_replica_mode_calls_the_function_once_per_replica_and_leaves_no_trace() -> None:
    strategy, contexts = mirrored(2), []

    def dataset_fn(context: dist.InputContext) -> dist.Dataset:
        contexts.append(context)
        return dist.Dataset.range(4).shard(context.num_input_pipelines, context.input_pipeline_id).batch(2)

    options = dist.InputOptions(fetch_to_device=False, replication_mode="per_replica")
    dataset = strategy.distribute_datasets_from_function(dataset_fn, options)
    assert [rows(step) for step in dataset] == [[[0, 2], [1, 3]]]
    assert contexts == [dist.InputContext(2, 0, 2), dist.InputContext(2, 1, 2)]
    assert steps(strategy, dist.Dataset.range(2).batch(2)) == [[[0], [1]]]
    with pytest.raises(NotImplementedError, match="use distribute_datasets_from_function"):
        strategy.distribute_dataset(dist.Dataset.range(2), options)


@pytest.mark.parametrize("returned", [[1, 2], None, 7])
def test_a_dataset_function_that_returns_something_else_is_refused(returned: Any) -> None:
    with pytest.raises(AttributeError, match="no dataset"):
        mirrored(2).distribute_datasets_from_function(lambda _: returned)
