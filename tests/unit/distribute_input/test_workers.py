from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drumline.distribute as dist
from drumline.distribute.input.explain import readers


def sub_batches(dataset: dist.Dataset, workers: int, replicas: int) -> list[list[Any]]:
    return [[piece.tolist() for piece in pieces] for pieces in dist.per_worker_batches(dataset, workers, replicas)]


def text_files(folder: Path, *contents: list[str]) -> list[Path]:
    paths = []
    for index, lines in enumerate(contents):
        paths.append(folder / f"{index}.txt")
        paths[-1].write_text("".join(f"{line}\n" for line in lines))
    return paths


def test_data_policy_keeps_every_workers_th_piece() -> None:
    assert sub_batches(dist.Dataset.range(7).batch(7), 2, 2) == [[[0, 1], [4, 5]], [[2, 3], [6]]]


def test_off_policy_rotates_the_sizes_of_each_worker() -> None:
    dataset = dist.Dataset.range(7).batch(7).with_auto_shard_policy("off")
    assert sub_batches(dataset, 2, 2) == [[[0, 1], [2, 3], [4, 5], [6]], [[0, 1], [2], [3, 4], [5, 6]]]


def test_a_size_of_zero_gives_a_piece_without_rows() -> None:
    dataset = dist.Dataset.range(2).batch(1).with_auto_shard_policy("off")
    assert sub_batches(dataset, 2, 1) == [[[0], [], [1], []], [[], [0], [], [1], []]]


def test_an_empty_dataset_gives_pieces_without_rows_up_to_the_first_that_needs_some() -> None:
    dataset = dist.Dataset.range(0).batch(1).with_auto_shard_policy("off")
    assert sub_batches(dataset, 2, 1) == [[], [[]]]


def test_file_policy_gives_whole_files_to_workers(tmp_path: Path) -> None:
    dataset = dist.Dataset.text_lines(text_files(tmp_path, ["a", "b", "c"], ["d", "e"], ["f"])).batch(2)
    assert sub_batches(dataset, 2, 1) == [[["a"], ["b"], ["c"], ["f"]], [["d"], ["e"]]]


def test_hint_policy_fills_the_marked_shard() -> None:
    dataset = dist.Dataset.range(6).shard(dist.SHARD_HINT, dist.SHARD_HINT).batch(2)
    assert sub_batches(dataset.with_auto_shard_policy("hint"), 2, 1) == [[[0], [2], [4]], [[1], [3], [5]]]
    with pytest.raises(ValueError, match="only under auto-shard policy HINT"):
        sub_batches(dataset, 2, 1)


@pytest.mark.parametrize("policy", ["auto", "file"])
def test_fewer_files_than_workers_is_an_error_that_names_both(tmp_path: Path, policy: str) -> None:
    dataset = dist.Dataset.text_lines(text_files(tmp_path, ["a"])).batch(2).with_auto_shard_policy(policy)
    with pytest.raises(ValueError, match="1 files can't be shared by 2 workers; write at least 2 files"):
        dist.per_worker_batches(dataset, 2, 1)


def test_file_policy_needs_files() -> None:
    dataset = dist.Dataset.range(4).batch(2).with_auto_shard_policy("file")
    with pytest.raises(ValueError, match="policy FILE needs a dataset that reads files"):
        dist.per_worker_batches(dataset, 2, 1)


def test_worker_counts_must_be_positive() -> None:
    with pytest.raises(ValueError, match="0 workers with 1 replicas"):
        dist.per_worker_batches(dist.Dataset.range(4).batch(2), 0, 1)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 4), st.integers(1, 3))
def test_data_policy_gives_every_row_to_exactly_one_worker(rows: int, size: int, workers: int, replicas: int) -> None:
    pieces = sub_batches(dist.Dataset.range(rows).batch(size), workers, replicas)
    assert sorted(row for worker in pieces for piece in worker for row in piece) == list(range(rows))
    assert len({len(worker) for worker in pieces}) == 1


def test_readers_are_said_in_words(tmp_path: Path) -> None:
    files = dist.Dataset.text_lines(text_files(tmp_path, ["a"], ["b"], ["c"])).batch(1)
    assert [sentence.split(":")[0] for sentence in readers(files, 2)] == [
        "worker 0 of 2 reads 2 files",
        "worker 1 of 2 reads 1 file",
    ]
    arrays = dist.Dataset.from_tensor_slices(np.ones(4)).batch(2)
    assert readers(arrays, 2)[1] == "worker 1 of 2 reads everything and keeps pieces 1, 3, ... of each batch"
