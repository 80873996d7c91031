"""What each of several workers reads of one dataset. Pure host work: it can be looked at without any device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from drumline.distribute.errors import InvalidValueError
from drumline.distribute.input import ops
from drumline.distribute.input.autoshard import AutoShardPolicy, effective_policy, split_rule
from drumline.distribute.input.dataset import Dataset, as_dataset, compute_batch_size
from drumline.distribute.input.rows import leading_rows
from drumline.distribute.input.splitting import SplitRule, batch_sizes_for_worker, even_sizes
from drumline.distribute.input.steps import RowStream


def dataset_of_worker(dataset: Dataset, num_workers: int, worker_index: int) -> Dataset:
    """The part of the dataset that one worker reads: its files under FILE, its shard under HINT, otherwise all of it.

    ValueError where the policy can't divide the dataset over so many workers.
    """
    policy = effective_policy(dataset.auto_shard_policy, dataset.files, num_workers)
    if policy is AutoShardPolicy.FILE and dataset.files:
        return dataset.of_files(range(worker_index, len(dataset.files), num_workers))
    if policy is AutoShardPolicy.HINT:
        return _with_own_shard(dataset, ops.Shard(num_workers, worker_index))
    return dataset


def _with_own_shard(dataset: Dataset, own: ops.Shard) -> Dataset:
    """``own`` in the place of the marker, also within datasets that were zipped or concatenated."""
    parts = tuple(_with_own_shard(part, own) for part in dataset.source.parts)
    chain = tuple(
        own if isinstance(op, ops.Shard) and op.is_hint else op.for_other_input() for op in dataset.operations
    )
    return replace(dataset, source=dataset.source.with_parts(parts), operations=chain)


def per_worker_batches(dataset: Any, num_workers: int, replicas_per_worker: int) -> list[Iterator[Any]]:
    """For each worker the sub-batches its replicas get, in order; each ``replicas_per_worker`` of them make a step.

    Nothing is padded or dropped at the end. ValueError where the policy can't divide the dataset.
    """
    if num_workers < 1 or replicas_per_worker < 1:
        raise InvalidValueError(
            f"{num_workers} workers with {replicas_per_worker} replicas each: both must be at least 1"
        )
    source = as_dataset(dataset)
    global_batch = compute_batch_size(source)
    parts = [dataset_of_worker(source, num_workers, worker) for worker in range(num_workers)]
    if split_rule(source.auto_shard_policy, source.files, global_batch) is SplitRule.CYCLE_SIZES:
        return [
            _split_in_cycles(part, batch_sizes_for_worker(global_batch, num_workers, replicas_per_worker, worker))
            for worker, part in enumerate(parts)
        ]
    keeps_own = effective_policy(source.auto_shard_policy, source.files, num_workers) is AutoShardPolicy.DATA
    replicas = num_workers * replicas_per_worker
    return [
        _split_evenly(part, replicas, slice(worker, None, num_workers) if keeps_own else slice(None))
        for worker, part in enumerate(parts)
    ]


def _split_evenly(dataset: Dataset, replicas: int, kept: slice) -> Iterator[Any]:
    """Rule A's pieces of every batch."""
    for element in dataset:
        start, pieces = 0, []
        for rows in even_sizes(leading_rows(element), replicas):
            pieces.append((start, start + rows))
            start += rows
        for begin, end in pieces[kept]:
            yield jax.tree.map(lambda leaf, cut=slice(begin, end): leaf[cut], element)


def _split_in_cycles(dataset: Dataset, sizes: tuple[int, ...]) -> Iterator[Any]:
    """Rule B's pieces. A size of zero gives a piece without rows, also when the input has just ended."""
    stream = RowStream(iter(dataset))  # type: ignore[arg-type]
    while True:
        for size in sizes:
            piece, rows = stream.take(size)
            if size and not rows:
                return
            yield _drop_rows(dataset.element_spec) if piece is None else piece


def _drop_rows(spec: Any) -> Any:
    return jax.tree.map(lambda leaf: np.zeros([0, *(size or 0 for size in leaf.shape[1:])], leaf.dtype), spec)
