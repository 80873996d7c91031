"""The operations of tf.data: elements, order and number as TensorFlow's documentation tells them."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.input.spec import ArraySpec

INFINITE, UNKNOWN = -1, -2
Dataset = dist.Dataset


def listed(dataset: Dataset) -> list[Any]:
    return [jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), element) for element in dataset]


def windows_listed(dataset: Dataset) -> list[Any]:
    return [listed(window) for window in dataset]


def repeated_by(times: int) -> Callable[[Any], Dataset]:
    return lambda x: Dataset.from_tensors(x).repeat(times)


#: (dataset, elements, cardinality). The elements are those that the pages of tf.data.Dataset print, where they do.
CASES: dict[str, tuple[Callable[[], Dataset], list[Any], int]] = {
    "from_tensors": (lambda: Dataset.from_tensors([1, 2, 3]), [[1, 2, 3]], 1),
    "from_tensors of a structure": (lambda: Dataset.from_tensors(([1, 2], "A")), [([1, 2], "A")], 1),
    "zip": (lambda: Dataset.zip(Dataset.range(1, 4), Dataset.range(4, 7)), [(1, 4), (2, 5), (3, 6)], 3),
    "zip of a structure": (
        lambda: Dataset.zip({"a": Dataset.range(1, 4), "b": (Dataset.range(9), Dataset.range(13, 15))}),
        [{"a": 1, "b": (0, 13)}, {"a": 2, "b": (1, 14)}],
        2,
    ),
    "zip with an endless one": (
        lambda: Dataset.zip((Dataset.range(2), Dataset.range(1).repeat())), [(0, 0), (1, 0)], 2
    ),
    "filter": (lambda: Dataset.from_tensor_slices([1, 2, 3]).filter(lambda x: x < 3), [1, 2], UNKNOWN),
    "filter of pairs": (
        lambda: Dataset.range(4).enumerate(5).filter(lambda i, x: x % 2 == 0), [(5, 0), (7, 2)], UNKNOWN
    ),
    "take_while": (lambda: Dataset.range(10).take_while(lambda x: x < 5), [0, 1, 2, 3, 4], UNKNOWN),
    "take_while stops for good": (
        lambda: Dataset.from_tensor_slices([1, 9, 1]).take_while(lambda x: x < 5), [1], UNKNOWN
    ),
    "enumerate": (lambda: Dataset.from_tensor_slices([1, 2, 3]).enumerate(start=5), [(5, 1), (6, 2), (7, 3)], 3),
    "enumerate, repeated": (lambda: Dataset.range(2).enumerate().repeat(2), [(0, 0), (1, 1)] * 2, 4),
    "concatenate": (lambda: Dataset.range(1, 4).concatenate(Dataset.range(4, 8)), [1, 2, 3, 4, 5, 6, 7], 7),
    "concatenate batches": (
        lambda: Dataset.range(3).batch(2).concatenate(Dataset.range(1).batch(2)).repeat(2), [[0, 1], [2], [0]] * 2, 6
    ),
    "flat_map": (
        lambda: Dataset.from_tensor_slices([[1, 2, 3], [4, 5, 6], [7, 8, 9]]).flat_map(Dataset.from_tensor_slices),
        [1, 2, 3, 4, 5, 6, 7, 8, 9],
        UNKNOWN,
    ),
    "interleave": (
        lambda: Dataset.range(1, 6).interleave(repeated_by(6), cycle_length=2, block_length=4),
        [1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 3, 3, 4, 4, 5, 5, 5, 5, 5, 5],
        UNKNOWN,
    ),
    "interleave of unequal lengths": (
        lambda: Dataset.range(5).interleave(lambda x: Dataset.from_tensors(x).repeat(int(x)), cycle_length=3),
        [1, 2, 3, 2, 3, 4, 3, 4, 4, 4],
        UNKNOWN,
    ),
    "interleave nothing": (lambda: Dataset.range(0).interleave(repeated_by(1)), [], UNKNOWN),
    "cache": (lambda: Dataset.range(3).map(lambda x: x * x).cache().repeat(2), [0, 1, 4] * 2, 6),
    "windows as batches": (
        lambda: Dataset.range(7).window(3, None, 1, True).flat_map(lambda window: window.batch(3)),
        [[0, 1, 2], [3, 4, 5]],
        UNKNOWN,
    ),
    "windows of pairs": (
        lambda: Dataset.range(4).enumerate(7).window(2).flat_map(
            lambda i, x: Dataset.zip((i.batch(2), x.batch(2)))
        ),
        [([7, 8], [0, 1]), ([9, 10], [2, 3])],
        UNKNOWN,
    ),
    "parallel map": (lambda: Dataset.range(9).map(lambda x: x + 1, num_parallel_calls=3), list(range(1, 10)), 9),
    "autotuned map": (
        lambda: Dataset.range(5).map(lambda x: x + 1, dist.AUTOTUNE).batch(2).prefetch(dist.AUTOTUNE),
        [[1, 2], [3, 4], [5]],
        3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_elements_and_their_number_are_tensorflows(name: str) -> None:
    build, elements, cardinality = CASES[name]
    assert listed(build()) == elements
    assert build().cardinality() == cardinality


@pytest.mark.parametrize(
    ("arguments", "windows", "cardinality"),
    [
        ({"size": 3}, [[0, 1, 2], [3, 4, 5], [6]], 3),
        ({"size": 3, "drop_remainder": True}, [[0, 1, 2], [3, 4, 5]], 2),
        ({"size": 3, "shift": 2, "drop_remainder": True}, [[0, 1, 2], [2, 3, 4], [4, 5, 6]], 3),
        ({"size": 3, "shift": 1, "stride": 2, "drop_remainder": True}, [[0, 2, 4], [1, 3, 5], [2, 4, 6]], 3),
        ({"size": 2, "shift": 3}, [[0, 1], [3, 4], [6]], 3),
        ({"size": 2, "shift": 5}, [[0, 1], [5, 6]], 2),
        ({"size": 2, "shift": 9}, [[0, 1]], 1),
        ({"size": 9, "drop_remainder": True}, [], 0),
        ({"size": 3, "shift": 4, "stride": 2}, [[0, 2, 4], [4, 6]], 2),
    ],
)
def test_windows_are_datasets_of_their_elements(
    arguments: dict[str, Any], windows: list[list[int]], cardinality: int
) -> None:
    dataset = Dataset.range(7).window(**arguments)
    assert windows_listed(dataset) == windows
    assert dataset.cardinality() == cardinality


@pytest.mark.parametrize(
    ("dataset", "cardinality"),
    [
        (Dataset.range(3).repeat().concatenate(Dataset.from_generator(lambda: iter([1]))), INFINITE),
        (Dataset.range(3).concatenate(Dataset.from_generator(lambda: iter([np.int64(1)]))), UNKNOWN),
        (Dataset.zip(Dataset.range(3).repeat(), Dataset.range(3).repeat()), INFINITE),
        (Dataset.zip(Dataset.range(3), Dataset.range(9).filter(lambda x: x > 0)), UNKNOWN),
        (Dataset.range(3).repeat().enumerate().cache(), INFINITE),
        (Dataset.range(3).repeat().filter(lambda x: x > 0), UNKNOWN),
        (Dataset.range(3).repeat().window(2), INFINITE),
    ],
)
def test_unknown_and_infinite_cardinalities_combine_as_in_tensorflow(dataset: Dataset, cardinality: int) -> None:
    assert dataset.cardinality() == cardinality


@pytest.mark.parametrize(
    ("dataset", "spec"),
    [
        (Dataset.from_tensors(np.ones((2, 3))), ArraySpec((2, 3), np.dtype(float))),
        (
            Dataset.zip(Dataset.range(3), Dataset.range(3).batch(2)),
            (ArraySpec((), np.dtype(np.int64)), ArraySpec((None,), np.dtype(np.int64))),
        ),
        (Dataset.range(3).window(2), dist.DatasetSpec(ArraySpec((), np.dtype(np.int64)))),
        (Dataset.range(4).window(2).flat_map(lambda w: w.batch(2, True)), ArraySpec((2,), np.dtype(np.int64))),
        (
            Dataset.from_tensors(np.ones((2, 3))).concatenate(Dataset.from_tensors(np.ones((4, 3)))),
            ArraySpec((None, 3), np.dtype(float)),
        ),
        (Dataset.range(4).filter(lambda x: x > 1), ArraySpec((), np.dtype(np.int64))),
    ],
)
def test_element_specs_of_joined_and_nested_datasets(dataset: Dataset, spec: Any) -> None:
    assert dataset.element_spec == spec


@pytest.mark.parametrize(
    ("dataset", "size"),
    [
        (Dataset.zip(Dataset.range(9).batch(4), Dataset.range(9).batch(4)).repeat(2), 4),
        (Dataset.zip(Dataset.range(9).batch(4), Dataset.range(9).batch(3)), -1),
        (Dataset.range(9).batch(4).concatenate(Dataset.range(2).batch(4)), 4),
        (Dataset.range(9).batch(4).filter(lambda x: True).cache(), 4),
        (Dataset.range(9).batch(4).flat_map(lambda x: Dataset.from_tensors(x)), -1),
    ],
)
def test_batch_size_is_inferred_where_all_parts_agree(dataset: Dataset, size: int) -> None:
    assert dist.compute_batch_size(dataset) == size


def test_numpy_iterators_give_arrays_and_numpy_scalars() -> None:
    elements = list(Dataset.range(3).map(lambda x: (x, np.ones(2))).as_numpy_iterator())
    assert [type(number) for number, _ in elements] == [np.int64] * 3
    assert [array.shape for _, array in elements] == [(2,)] * 3


def test_a_cached_dataset_is_read_once_and_keeps_its_order_and_its_values() -> None:
    reads: list[int] = []

    def read() -> Iterator[Any]:
        reads.append(1)
        yield from (np.arange(3) + start for start in range(20))

    dataset = Dataset.from_generator(read).shuffle(20).cache()
    assert next(iter(dataset)).shape == (3,)  # a pass that ends early keeps nothing
    first = listed(dataset)
    for element in dataset:
        element += 100  # as a careless step would
    assert listed(dataset.at_iteration(1)) == listed(dataset) == first
    assert len(reads) == 2


def test_a_shuffle_after_the_cache_still_differs_between_passes() -> None:
    dataset = Dataset.range(40).map(lambda x: x).cache().shuffle(40)
    assert listed(dataset) != listed(dataset.at_iteration(1))


def test_parts_of_a_joined_dataset_are_shuffled_anew_each_pass() -> None:
    dataset = Dataset.range(30).shuffle(30).concatenate(Dataset.range(30, 60).shuffle(30, seed=1))
    nested = Dataset.range(1).flat_map(lambda _: Dataset.range(30).shuffle(30))
    for shuffled in (dataset, nested):
        assert sorted(listed(shuffled)) == sorted(listed(shuffled.at_iteration(1)))
        assert listed(shuffled) != listed(shuffled.at_iteration(1))


def test_zipped_arrays_are_batched_as_whole_slices() -> None:
    zipped = Dataset.zip(Dataset.range(7), Dataset.from_tensor_slices(np.ones((5, 2))))
    assert type(zipped.to_grain()).__name__ == "ArrayRows"
    assert [len(x) for x, _ in zipped.batch(2)] == [2, 2, 1]


def test_parallel_calls_overlap_and_keep_their_order() -> None:
    together = threading.Barrier(3, timeout=30)

    def meet(x: Any) -> Any:
        together.wait()
        return x

    assert listed(Dataset.range(9).map(meet, num_parallel_calls=3)) == list(range(9))

    def opened(x: Any) -> Dataset:
        return Dataset.from_generator(lambda: (meet(x) for _ in range(2)))

    nested = Dataset.range(3).interleave(opened, cycle_length=3, num_parallel_calls=3)
    assert listed(nested) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("chosen", [{"deterministic": False}, {}])
def test_results_come_as_they_are_ready_where_order_does_not_matter(chosen: dict[str, bool]) -> None:
    last_began = threading.Event()

    def wait_for_the_last(x: Any) -> Any:
        if x == 3:
            last_began.set()
        elif x == 0:
            assert last_began.wait(30)
        return x

    builds: list[Callable[[Dataset], Dataset]] = [
        lambda d: d.map(wait_for_the_last, num_parallel_calls=2, **chosen),
        lambda d: d.interleave(
            lambda x: Dataset.from_generator(lambda: map(wait_for_the_last, [x])),
            cycle_length=2, num_parallel_calls=2, **chosen,
        ),
    ]  # fmt: skip
    for build in builds:
        last_began.clear()
        dataset = build(Dataset.range(4))
        if not chosen:
            dataset = dataset.with_options(dist.Options(deterministic=False))
        elements = listed(dataset)
        assert sorted(elements) == [0, 1, 2, 3]
        assert elements[0] != 0


def test_an_error_in_a_parallel_call_is_raised_where_its_element_belongs() -> None:
    def fail_at_two(x: Any) -> Any:
        if x == 2:
            raise KeyError("two")
        return x

    iterator = iter(Dataset.range(5).map(fail_at_two, num_parallel_calls=4))
    assert [int(next(iterator)), int(next(iterator))] == [0, 1]
    with pytest.raises(KeyError, match="two"):
        next(iterator)


def test_options_choose_the_policy_and_leave_the_rest() -> None:
    options = dist.Options()
    options.experimental_distribute.auto_shard_policy = dist.AutoShardPolicy.OFF
    dataset = Dataset.range(3).with_options(dist.Options(deterministic=False)).with_options(options)
    assert dataset.options().experimental_distribute.auto_shard_policy is dist.AutoShardPolicy.OFF
    assert dataset.options().experimental_deterministic is False
    assert Dataset.range(3).concatenate(dataset).options().auto_shard_policy is dist.AutoShardPolicy.OFF


def text_files(folder: Path, counts: list[int]) -> list[str]:
    paths = []
    for number, count in enumerate(counts):
        path = folder / f"{number}.txt"
        path.write_text("".join(f"{number}-{line}\n" for line in range(count)))
        paths.append(str(path))
    return paths


@pytest.mark.parametrize(
    "build",
    [
        lambda paths: Dataset.text_lines(paths[:2]).concatenate(Dataset.text_lines(paths[2:])).batch(4),
        lambda paths: Dataset.zip(Dataset.text_lines(paths), Dataset.range(100)).batch(4),
        lambda paths: Dataset.text_lines(paths).concatenate(Dataset.from_tensor_slices(["more"] * 5)).batch(4),
        lambda paths: Dataset.from_tensor_slices(paths).interleave(Dataset.text_lines).batch(4),
        lambda paths: Dataset.text_lines(paths).filter(lambda line: not str(line).endswith("-1")).cache().batch(4),
        lambda paths: Dataset.text_lines(paths).flat_map(lambda line: Dataset.from_tensors(line)).batch(4),
        lambda paths: Dataset.text_lines(paths).cache().take_while(lambda line: True).batch(4),
    ],
    ids=["concatenate", "zip", "concatenate without files", "interleave", "filter", "flat_map", "cache, take_while"],
)
def test_every_policy_reads_each_row_once_an_epoch(tmp_path: Path, build: Callable[[list[str]], Dataset]) -> None:
    dataset = build(text_files(tmp_path, [7, 3, 9, 2]))
    whole = sorted(str(row) for batch in dataset for row in jax.tree.leaves(batch)[0])
    for policy in ("auto", "data", *(["file"] if dataset.files else [])):
        parts = dist.per_worker_batches(dataset.with_auto_shard_policy(policy), 2, 2)
        rows = [str(row) for part in parts for batch in part for row in jax.tree.leaves(batch)[0]]
        assert sorted(rows) == whole, policy


def test_zipped_files_are_divided_by_rows_and_never_by_files(tmp_path: Path) -> None:
    lines = Dataset.text_lines(text_files(tmp_path, [2, 5]))
    pairs = Dataset.zip(lines, lines.enumerate()).batch(2)
    assert pairs.files == ()
    with pytest.raises(ValueError, match="policy FILE needs"):
        dist.per_worker_batches(pairs.with_auto_shard_policy("file"), 2, 1)


def test_the_hint_marks_shards_within_joined_datasets() -> None:
    marked = Dataset.range(6).shard(dist.SHARD_HINT, dist.SHARD_HINT)
    dataset = marked.concatenate(Dataset.range(6, 8)).batch(4).with_auto_shard_policy("hint")
    rows = [[x for batch in part for x in batch.tolist()] for part in dist.per_worker_batches(dataset, 2, 1)]
    assert rows == [[0, 2, 4, 6, 7], [1, 3, 5, 6, 7]]


def test_explain_knows_no_steps_where_only_reading_tells_them() -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    filtered = Dataset.range(9).batch(4).filter(lambda x: True)
    assert strategy.distribute_dataset(filtered).explain().steps is None
    joined = Dataset.zip(Dataset.range(9), Dataset.range(7)).batch(4)
    assert strategy.distribute_dataset(joined).explain().last_step == (2, 1)


def wrong(value: Any) -> Any:
    """A value of another type than is asked for."""
    return value


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: Dataset.zip(Dataset.range(2), [1, 2]), TypeError, "zip takes datasets, not 1"),
        (lambda: Dataset.zip(()), ValueError, "at least one dataset"),
        (lambda: Dataset.range(2).concatenate(wrong([1])), TypeError, "concatenate takes a dataset"),
        (
            lambda: Dataset.range(2).concatenate(Dataset.from_tensor_slices(np.ones(2))),
            ValueError,
            "concatenate joins elements of one structure",
        ),
        (lambda: list(Dataset.range(2).filter(lambda x: x)), ValueError, r"predicate of filter.* returned .*int64"),
        (lambda: list(Dataset.range(2).flat_map(lambda x: x)), TypeError, "is no Dataset; return one"),
        (lambda: Dataset.range(2).interleave(repeated_by(1), cycle_length=0), ValueError, "cycle_length must be 1 to"),
        (lambda: Dataset.range(2).interleave(repeated_by(1), block_length=0), ValueError, "block_length must be"),
        (lambda: Dataset.range(2).window(0), ValueError, r"window\(0, .*size must be at least 1"),
        (lambda: Dataset.range(2).map(abs, num_parallel_calls=0), ValueError, "use 1 to 256 threads, or AUTOTUNE"),
        (lambda: Dataset.range(2).map(abs, num_parallel_calls=wrong("two")), TypeError, "give a number of threads"),
        (lambda: Dataset.range(2).cache("file"), NotImplementedError, "kept in memory only"),
        (lambda: Dataset.range(2).with_options(wrong("off")), TypeError, r"takes dist\.Options"),
        (lambda: dist.Options(deterministic=wrong(1)), TypeError, "is True, False or None"),
        (lambda: list(Dataset.range(4).window(2).batch(2)), TypeError, r"is a dataset and no array; use flat_map"),
        (lambda: dist.Options().threading, AttributeError, "no option 'threading'"),
    ],
)
def test_misuse_is_refused(build: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build()
