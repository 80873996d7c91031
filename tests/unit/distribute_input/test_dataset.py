from collections.abc import Callable, Iterator
from typing import Any

import grain
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drumline.distribute as dist
from drumline.distribute.input.dataset import Dataset, as_dataset, compute_batch_size
from drumline.distribute.input.spec import ArraySpec


def listed(dataset: Dataset) -> list[Any]:
    return [element.tolist() for element in dataset]


def streamed(dataset: Dataset) -> Dataset:
    """The same elements from a source that can only be read in order."""
    return Dataset.from_generator(lambda: iter(list(dataset)))


PIPELINES: list[tuple[str, Callable[[Dataset], Dataset], list[Any]]] = [
    ("batch", lambda d: d.batch(4), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]),
    ("batch dropping", lambda d: d.batch(4, drop_remainder=True), [[0, 1, 2, 3], [4, 5, 6, 7]]),
    ("batches cross epochs", lambda d: d.take(3).repeat(2).batch(2), [[0, 1], [2, 0], [1, 2]]),
    ("repeat after batch", lambda d: d.take(3).batch(2).repeat(2), [[0, 1], [2], [0, 1], [2]]),
    ("endless", lambda d: d.take(2).repeat().batch(3).take(2), [[0, 1, 0], [1, 0, 1]]),
    ("take", lambda d: d.take(2), [0, 1]),
    ("take all", lambda d: d.take(-1).skip(8), [8, 9]),
    ("skip", lambda d: d.skip(8), [8, 9]),
    ("skip past the end", lambda d: d.skip(20), []),
    ("shard", lambda d: d.shard(4, 1), [1, 5, 9]),
    ("shard of batches", lambda d: d.batch(4).shard(2, 0), [[0, 1, 2, 3], [8, 9]]),
    ("map", lambda d: d.take(3).map(lambda x: x * 2), [0, 2, 4]),
    ("unbatch", lambda d: d.take(4).batch(3).unbatch(), [0, 1, 2, 3]),
    ("batched twice", lambda d: d.take(4).batch(2).batch(2), [[[0, 1], [2, 3]]]),
    ("prefetch", lambda d: d.take(4).batch(2).prefetch(2), [[0, 1], [2, 3]]),
    ("repeat nothing", lambda d: d.repeat(0), []),
    ("repeat an empty dataset", lambda d: d.take(0).repeat(), []),
    ("slices of repeated rows", lambda d: d.take(3).repeat(2).skip(2).shard(2, 0), [2, 1]),
]


@pytest.mark.parametrize(("build", "expected"), [case[1:] for case in PIPELINES], ids=[case[0] for case in PIPELINES])
@pytest.mark.parametrize("ordered", [False, True], ids=["random access", "in order"])
def test_operations(build: Callable[[Dataset], Dataset], expected: list[Any], ordered: bool) -> None:
    source = Dataset.range(10)
    assert listed(build(streamed(source) if ordered else source)) == expected


@pytest.mark.parametrize(("build", "expected"), [case[1:] for case in PIPELINES], ids=[case[0] for case in PIPELINES])
def test_cardinality_is_the_number_of_elements_or_unknown(
    build: Callable[[Dataset], Dataset], expected: list[Any]
) -> None:
    assert build(Dataset.range(10)).cardinality() in (len(expected), -2)


def test_unbatching_batches_of_one_size_keeps_the_number_of_rows_known() -> None:
    assert Dataset.range(10).batch(4, drop_remainder=True).unbatch().cardinality() == 8


def test_cardinality_of_endless_and_unknown_datasets() -> None:
    assert Dataset.range(3).repeat().cardinality() == -1
    assert Dataset.range(0).repeat().cardinality() == 0
    assert Dataset.from_generator(lambda: iter([1])).cardinality() == -2
    assert Dataset.from_generator([np.ones(2)] * 3).cardinality() == 3


def test_padded_batch_pads_to_the_longest_element() -> None:
    dataset = Dataset.from_generator([np.array([1]), np.array([2, 3]), np.array([4])]).padded_batch(2)
    assert listed(dataset) == [[[1, 0], [2, 3]], [[4]]]


def test_map_passes_a_tuple_as_separate_arguments_and_other_nests_whole() -> None:
    pairs = Dataset.from_tensor_slices((np.array([1, 2]), np.array([10, 20])))
    assert listed(pairs.map(lambda x, y: x + y)) == [11, 22]
    named = Dataset.from_tensor_slices({"x": np.array([1, 2])})
    assert listed(named.map(lambda row: row["x"])) == [1, 2]


@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 3), st.booleans())
def test_whole_slices_hold_the_same_rows_as_batching_row_by_row(rows: int, size: int, epochs: int, drop: bool) -> None:
    dataset = Dataset.range(rows).repeat(epochs).batch(size, drop_remainder=drop)
    flat = list(range(rows)) * epochs
    expected = [flat[i : i + size] for i in range(0, len(flat), size)]
    if drop:
        expected = [batch for batch in expected if len(batch) == size]
    assert listed(dataset) == expected


def test_batches_do_not_change_when_the_program_changes_its_array() -> None:
    array = np.arange(4)
    first = next(iter(Dataset.from_tensor_slices(array).batch(2)))
    array[:] = -1
    assert first.tolist() == [0, 1]


def test_a_generator_may_reuse_its_buffer() -> None:
    def batches() -> Iterator[Any]:
        buffer = np.zeros(2)
        for value in range(3):
            buffer[:] = value
            yield buffer

    assert listed(Dataset.from_generator(batches)) == [[0, 0], [1, 1], [2, 2]]


def test_a_one_shot_iterator_can_be_looked_at_but_is_read_only_once() -> None:
    dataset = as_dataset(iter([np.zeros(2), np.ones(2)]))
    assert dataset.element_spec == ArraySpec((None,), np.dtype(float))
    assert len(list(dataset)) == 2
    with pytest.raises(ValueError, match="already read"):
        list(dataset)


@pytest.mark.parametrize(
    ("dataset", "shape"),
    [
        (Dataset.range(10), ()),
        (Dataset.range(10).batch(4), (None,)),
        (Dataset.range(10).batch(4, drop_remainder=True), (4,)),
        (Dataset.range(10).batch(4).map(lambda x: x[:, None]), (None, 1)),
        (Dataset.range(10).batch(4, drop_remainder=True).map(lambda x: x[:2]), (2,)),
        (Dataset.range(10).batch(4).map(lambda x: x.sum()), ()),
        (Dataset.range(10).batch(4).unbatch(), ()),
        (Dataset.range(0).batch(4).map(lambda x: x + 1), (None,)),
        (Dataset.range(10).batch(2).batch(3), (None, None)),
        (Dataset.from_tensor_slices(np.ones((4, 3, 2))).batch(2).prefetch(1), (None, 3, 2)),
        (Dataset.from_generator([np.ones((2, 3))]), (None, 3)),
        (Dataset.from_grain(grain.MapDataset.range(4).batch(2)), (None,)),
    ],
)
def test_element_spec_knows_static_dimensions(dataset: Dataset, shape: tuple[int | None, ...]) -> None:
    assert dataset.element_spec.shape == shape


def test_element_spec_of_an_empty_foreign_dataset_asks_for_a_declaration() -> None:
    with pytest.raises(ValueError, match="declare one"):
        _ = Dataset.from_generator([]).element_spec
    declared = ArraySpec((None,), np.dtype(float))
    assert Dataset.from_generator([], element_spec=declared).element_spec == declared


@pytest.mark.parametrize(
    ("dataset", "size"),
    [
        (Dataset.range(10).batch(4).skip(1).repeat(2).prefetch(1), 4),
        (Dataset.range(10).padded_batch(3), 3),
        (Dataset.range(10).batch(4).map(lambda x: x), -1),
        (Dataset.range(10).batch(4, drop_remainder=True).map(lambda x: x), 4),
        (Dataset.range(10).batch(4).unbatch(), -1),
        (Dataset.range(10), -1),
        (Dataset.from_tensor_slices(np.ones((4, 3))), 3),
        (Dataset.from_tensor_slices((np.ones((4, 3)), np.ones((4, 2)))), -1),
        (Dataset.from_generator([np.ones(3)]), -1),
        (Dataset.from_generator([]), -1),
    ],
)
def test_batch_size_is_inferred_where_the_pipeline_tells_it(dataset: Dataset, size: int) -> None:
    assert compute_batch_size(dataset) == size


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: Dataset.range(3).batch(0), ValueError, r"batch\(0\): a batch needs at least 1 row"),
        (
            lambda: list(Dataset.from_generator([np.ones(1), np.ones(2)]).batch(2)),
            ValueError,
            r"shape \(1,\) and \(2,\) can't be stacked to one batch; use padded_batch",
        ),
        (lambda: Dataset.range(3).unbatch(), ValueError, r"unbatch\(\) takes the rows .* scalars have none"),
        (lambda: Dataset.range(3).shuffle(0), ValueError, r"shuffle\(0\): the window needs at least 1"),
        (lambda: Dataset.range(3).shard(2, 2), ValueError, r"shard\(2, 2\): .* index in 0..num_shards-1"),
        (lambda: Dataset.from_tensor_slices(np.float32(1)), ValueError, r"arrays of shape \(\) have no rows"),
        (lambda: Dataset.from_tensor_slices((np.ones(2), np.ones(3))), ValueError, "differ in their number of rows"),
        (lambda: as_dataset(7), TypeError, "7 is no dataset"),
        (lambda: Dataset.from_grain([1]), TypeError, "no grain MapDataset"),
        (
            lambda: Dataset.range(3).with_auto_shard_policy("some"),
            ValueError,
            "unknown auto-shard policy 'some'; use one",
        ),
    ],
)
def test_misuse_is_refused(build: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build()


class TorchLikeTensor:
    """A foreign tensor: numpy can read it, nothing more is known."""

    def __init__(self, values: list[float]) -> None:
        self._values = np.array(values)
        self.shape = self._values.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self._values


def test_a_loader_that_yields_lists_of_tensors_gives_tuples_of_arrays() -> None:
    loader = [[TorchLikeTensor([1.0, 2.0]), TorchLikeTensor([3.0, 4.0])]]
    ((x, y),) = list(as_dataset(loader))
    assert (x.tolist(), y.tolist()) == ([1, 2], [3, 4])


def test_a_list_of_numbers_is_one_batch() -> None:
    assert listed(as_dataset([[1, 2], [3]])) == [[1, 2], [3]]


@given(st.integers(1, 30), st.integers(1, 9), st.integers(0, 3))
def test_every_shuffled_epoch_holds_every_row_once(rows: int, size: int, seed: int) -> None:
    dataset = Dataset.range(rows).shuffle(rows, seed).repeat(3).batch(size)
    flat = [row for batch in dataset for row in batch.tolist()]
    assert [sorted(flat[start : start + rows]) for start in range(0, 3 * rows, rows)] == [list(range(rows))] * 3


@pytest.mark.parametrize(
    "shuffled",
    [
        lambda seed: Dataset.range(50).shuffle(50, seed),
        lambda seed: Dataset.range(50).shuffle(50, seed).skip(0),
        lambda seed: Dataset.range(50).map(lambda x: x).shuffle(50, seed),
        lambda seed: streamed(Dataset.range(50)).shuffle(50, seed),
    ],
    ids=["arrays", "arrays, sliced", "random access", "in order"],
)
def test_the_order_depends_on_the_seed_and_on_the_pass(shuffled: Callable[[int], Dataset]) -> None:
    one = listed(shuffled(1))
    assert sorted(one) == list(range(50)) != one
    assert listed(shuffled(1)) == one
    assert listed(shuffled(2)) != one
    assert listed(shuffled(1).at_iteration(1)) != one


def test_epochs_of_a_repeated_shuffle_differ() -> None:
    flat = listed(Dataset.range(50).shuffle(50).repeat(2))
    assert flat[:50] != flat[50:]


def test_the_order_can_be_kept_for_every_pass() -> None:
    dataset = Dataset.range(50).shuffle(50, reshuffle_each_iteration=False)
    assert listed(dataset.at_iteration(1)) == listed(dataset)


def test_a_dataset_has_a_length_where_it_is_known() -> None:
    assert len(Dataset.range(10).batch(4)) == 3
    assert bool(Dataset.range(0))
    with pytest.raises(TypeError, match="the dataset is infinite"):
        len(Dataset.range(3).repeat())
    with pytest.raises(TypeError, match="the dataset's length is unknown"):
        len(Dataset.range(3).filter(bool))


def test_a_step_may_capture_a_dataset_without_an_end() -> None:
    two, endless = dist.MirroredStrategy(["CPU:0", "CPU:1"]), Dataset.range(3).repeat()

    def step(x: int) -> Any:
        return x + len(str(type(endless)))

    assert two.run(step, args=(1,)).num_replicas == 2
