from typing import Any

import jax
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.input.v1 import make_dataset_iterator, make_input_fn_iterator, make_numpy_dataset


@pytest.fixture
def strategy() -> dist.MirroredStrategy:
    return dist.MirroredStrategy(jax.devices()[:2])


def rows(step: Any) -> list[Any]:
    return [np.asarray(value).tolist() for value in step.values]


def test_the_global_batch_is_divided(strategy: dist.MirroredStrategy) -> None:
    iterator = make_dataset_iterator(strategy, dist.Dataset.range(3).batch(2))
    iterator.initialize()
    assert [rows(iterator.get_next()) for _ in range(2)] == [[[0], [1]], [[2], []]]
    with pytest.raises(LookupError):
        iterator.get_next()
    iterator.initialize()
    assert rows(iterator.get_next()) == [[0], [1]]


def test_a_per_replica_batch_is_taken_whole(strategy: dist.MirroredStrategy) -> None:
    iterator = make_dataset_iterator(strategy, dist.Dataset.range(5).batch(2), batch_is_per_replica=True)
    assert [rows(iterator.get_next()) for _ in range(2)] == [[[0, 1], [2, 3]], [[4], []]]


def test_an_input_function_may_return_a_dataset(strategy: dist.MirroredStrategy) -> None:
    iterator = make_input_fn_iterator(
        strategy, lambda context: dist.Dataset.range(4).batch(context.num_replicas_in_sync)
    )
    assert rows(iterator.get_next()) == [[0, 1], [2, 3]]


def test_a_returned_function_is_called_once_per_replica_and_step_when_asked(strategy: dist.MirroredStrategy) -> None:
    calls: list[int] = []

    def next_value() -> np.int32:
        if len(calls) == 5:
            raise StopIteration
        calls.append(len(calls))
        return np.int32(calls[-1])

    iterator = make_input_fn_iterator(strategy, lambda _: next_value)
    assert rows(iterator.get_next()) == [0, 1]
    assert len(calls) == 2
    assert rows(iterator.get_next()) == [2, 3]
    with pytest.raises(LookupError):
        iterator.get_next()


def test_other_input_functions_and_modes_are_refused(strategy: dist.MirroredStrategy) -> None:
    with pytest.raises(ValueError, match="input_fn returned 7"):
        make_input_fn_iterator(strategy, lambda _: 7)
    with pytest.raises(ValueError, match="PER_WORKER only"):
        make_input_fn_iterator(strategy, lambda _: dist.Dataset.range(2), dist.InputReplicationMode.PER_REPLICA)


def test_numpy_datasets_keep_tuples_and_stack_lists() -> None:
    one, two = np.array([1, 2]), np.array([3, 4])
    assert [element.tolist() for element in make_numpy_dataset([one, two])] == [[1, 2], [3, 4]]
    assert [(int(x), int(y)) for x, y in make_numpy_dataset((one, two))] == [(1, 3), (2, 4)]
    with pytest.raises(ValueError, match="differ in their number of rows"):
        make_numpy_dataset((one, np.ones(3)))


def test_the_initializer_of_old_programs_starts_over_like_initialize(strategy: dist.MirroredStrategy) -> None:
    iterator = make_dataset_iterator(strategy, dist.Dataset.range(4).batch(2))
    first = rows(iterator.get_next())
    _ = iterator.initializer
    assert rows(iterator.get_next()) == first
