"""Says in words, before anything is read, who reads what and which rows every replica gets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from drumline.distribute.input import ops
from drumline.distribute.input.autoshard import AutoShardPolicy, effective_policy, files_of_worker
from drumline.distribute.input.dataset import Dataset
from drumline.distribute.input.interleaving import Interleave
from drumline.distribute.input.selecting import Filter
from drumline.distribute.input.splitting import SplitRule, cycle_sizes, cycled_steps, even_sizes, even_steps
from drumline.distribute.input.windows import Window

_SHOWN_FILES = 8
_Rows = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class InputExplanation:
    """How one dataset is divided. ``str`` of it is meant to be read; None stands for what can't be known in advance.

    ``readers``: one sentence per worker. ``first_step`` and ``last_step``: rows per replica. ``dropped_rows``: rows of
    the source that no replica ever gets. ``partial_at`` and ``partial_step``: the first step that has fewer rows than
    step 0, and its rows per replica; None also where all steps are full. An endless dataset can have one.
    """

    dataset: str
    policy: str
    readers: tuple[str, ...]
    rule: str
    reason: str
    first_step: tuple[int, ...] | None
    last_step: tuple[int, ...] | None
    steps: int | None
    dropped_rows: int | None
    partial_at: int | None = None
    partial_step: tuple[int, ...] | None = None

    def __str__(self) -> str:
        lines = [
            f"{self.dataset}, auto-shard policy {self.policy}",
            *self.readers,
            f"{self.rule}, because {self.reason}",
        ]
        if self.first_step is not None:
            lines.append(f"first step: rows per replica {_list_counts(self.first_step)}")
        if self.last_step is not None:
            lines.append(f"last of {self.steps} steps: rows per replica {_list_counts(self.last_step)}")
        elif self.steps is None:
            lines.append("the number of steps is not known in advance")
        if self.dropped_rows is None:
            lines.append("dropped rows are not known in advance; iterator.dropped_rows counts them")
        else:
            lines.append(f"dropped: {self.dropped_rows or 'no'} row{'s' * (self.dropped_rows != 1)}")
        return "\n".join(lines)


def explain_split(
    dataset: Dataset, rule: SplitRule, global_batch: int, replicas: int, *, pads: bool
) -> InputExplanation:
    """For a dataset whose batches are divided. ``global_batch`` is -1 where it can't be inferred."""
    epoch, is_endless = epoch_rows(dataset)
    batches = None if is_endless else epoch
    first = last = steps = dropped = None
    if rule is SplitRule.EACH_BATCH:
        text = f"rule A: each batch is cut on its own into ceil(rows / {replicas}) rows per replica"
        tables: Iterable[tuple[int, ...]] = even_steps(epoch.tolist(), replicas) if epoch is not None else ()
        first = even_sizes(global_batch, replicas) if global_batch > 0 else None
    else:
        first = cycle_sizes(global_batch, replicas)
        text = f"rule B: rows flow through the sizes {_list_counts(first)} in a cycle, across batches"
        tables = cycled_steps(batches.tolist(), global_batch, replicas) if batches is not None else ()
    kept = list(tables)
    if batches is not None:
        if rule is SplitRule.CYCLE_SIZES and not pads and _leaves_some_empty(first, kept):
            kept.pop()
        steps = len(kept)
        first, last = None, kept[-1] if kept else None
        dropped = _rows_lost_by_batching(dataset, int(batches.sum()), sum(map(sum, kept)))
    first = kept[0] if kept else first
    partial_at = next((step for step, rows in enumerate(kept) if sum(rows) < sum(kept[0])), None)
    return InputExplanation(
        str(dataset),
        dataset.auto_shard_policy.name,
        readers(dataset, 1),
        text,
        _reason(dataset, rule, global_batch),
        first,
        last,
        steps,
        dropped,
        partial_at,
        None if partial_at is None else kept[partial_at],
    )


def _leaves_some_empty(sizes: Iterable[int] | None, steps: list[tuple[int, ...]]) -> bool:
    """Whether the last step has no row for a replica that is to have some."""
    return bool(steps) and any(size and not got for size, got in zip(sizes or (), steps[-1], strict=True))


def explain_whole(datasets: list[Dataset], replicas: int) -> InputExplanation:
    """For datasets of which every replica takes whole elements."""
    shared = len(datasets) == 1
    who = "the replicas take turns at one dataset" if shared else "each replica reads a dataset of its own"
    return InputExplanation(
        str(datasets[0]),
        datasets[0].auto_shard_policy.name,
        (f"worker 0 of 1 reads all of it; {who}",),
        "no division: every replica takes a whole element per step",
        "the dataset comes from a function, or its batch is the batch of one replica",
        None,
        None,
        None,
        None,
    )


def readers(dataset: Dataset, num_workers: int) -> tuple[str, ...]:
    """One sentence per worker about what it reads. ValueError where the policy can't divide the dataset."""
    policy = effective_policy(dataset.auto_shard_policy, dataset.files, num_workers)
    sentences = []
    for worker in range(num_workers):
        who = f"worker {worker} of {num_workers} reads"
        if policy is AutoShardPolicy.FILE and dataset.files:
            sentences.append(f"{who} {_files(files_of_worker(dataset.files, num_workers, worker))}")
        elif policy is AutoShardPolicy.DATA and num_workers > 1:
            sentences.append(f"{who} everything and keeps pieces {worker}, {worker + num_workers}, ... of each batch")
        elif policy is AutoShardPolicy.HINT and num_workers > 1:
            sentences.append(f"{who} elements {worker}, {worker + num_workers}, ... at the marked shard")
        else:
            sentences.append(f"{who} everything")
    return tuple(sentences)


def epoch_rows(dataset: Dataset) -> tuple[_Rows | None, bool]:
    """Rows of every batch in order, None where only reading can tell; and whether this repeats without end."""
    last_batch = max((i for i, op in enumerate(dataset.operations) if isinstance(op, ops.Batch)), default=None)
    if last_batch is None:
        return None, False
    before = dataset.source.cardinality()
    for operation in dataset.operations[:last_batch]:
        before = operation.cardinality(before)
    batch = dataset.operations[last_batch]
    assert isinstance(batch, ops.Batch)
    if before < 0:
        return None, False
    full, rest = divmod(before, batch.rows)
    rows = np.full(full + (rest > 0 and not batch.drop_remainder), batch.rows, np.int64)
    if rest and not batch.drop_remainder:
        rows[-1] = rest
    return _apply_operations(dataset.operations[last_batch + 1 :], rows)


def _apply_operations(operations: Iterable[ops.Op], rows: _Rows) -> tuple[_Rows | None, bool]:
    """The operations on the list of row counts; ``map`` is taken to keep them."""
    is_endless = False
    for operation in operations:
        if isinstance(operation, ops.Repeat) and operation.epochs is None and len(rows):
            is_endless = True
            continue
        changed = _apply_operation(operation, rows)
        if changed is None or (is_endless and changed is not rows):
            return None, False
        rows = changed
    return rows, is_endless


def _apply_operation(operation: ops.Op, rows: _Rows) -> _Rows | None:
    """None where only reading tells which batches are left."""
    if isinstance(operation, (ops.Unbatch, Filter, Interleave, Window)):
        return None
    if isinstance(operation, ops.Take):
        return rows[: operation.count]
    if isinstance(operation, ops.Skip):
        return rows[operation.count :]
    if isinstance(operation, ops.Shard) and not operation.is_hint:
        return rows[operation.index :: operation.num_shards]
    if isinstance(operation, ops.Repeat):
        return np.tile(rows, operation.epochs or 0)
    return rows


def _rows_lost_by_batching(dataset: Dataset, batched: int, given: int) -> int:
    """Rows in batches that no replica gets, and the remainder that ``drop_remainder`` cuts off."""
    lost = batched - given
    for position, operation in enumerate(dataset.operations):
        if isinstance(operation, ops.Batch) and operation.drop_remainder:
            before = dataset.source.cardinality()
            for earlier in dataset.operations[:position]:
                before = earlier.cardinality(before)
            lost += before % operation.rows if before > 0 else 0
    return lost


def _reason(dataset: Dataset, rule: SplitRule, global_batch: int) -> str:
    policy, files = dataset.auto_shard_policy, dataset.files
    if rule is SplitRule.CYCLE_SIZES:
        if policy is AutoShardPolicy.AUTO:
            return "policy AUTO means FILE for a dataset that reads files"
        return f"policy {policy.name} keeps batches as they are, and the global batch is {global_batch}"
    if policy is AutoShardPolicy.DATA:
        return "policy DATA cuts every batch"
    if policy is AutoShardPolicy.AUTO and not files:
        lacks = "can't be divided by files" if dataset.source.parts else "reads no files"
        return f"policy AUTO means DATA for a dataset that {lacks}"
    return "the global batch can't be inferred (a map or a foreign source hides it)"


def _files(files: tuple[str, ...]) -> str:
    hidden = len(files) - _SHOWN_FILES
    shown = ", ".join(files[:_SHOWN_FILES]) + (f" and {hidden} more" if hidden > 0 else "")
    return f"{len(files)} file{'s' * (len(files) != 1)}: {shown}"


def _list_counts(rows: tuple[int, ...]) -> str:
    return ", ".join(map(str, rows))
