"""How the rows of global batches are divided over replicas: two rules, as pure functions over row counts.

Rule A cuts each incoming batch on its own into ceil(rows / replicas) rows per replica. Rule B lets rows flow through a
cycle of sizes that differ by at most one, ignoring batch borders. Neither ever changes the order of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

from drumline.distribute.errors import InvalidValueError


class SplitRule(Enum):
    """Which of the two rules divides a batch."""

    EACH_BATCH = "A"
    CYCLE_SIZES = "B"


def even_sizes(rows: int, replicas: int) -> tuple[int, ...]:
    """Rule A: rows of each replica for one batch; replica i gets rows [i*c, (i+1)*c) with c = ceil(rows / replicas)."""
    chunk = -(-rows // replicas)
    return tuple(max(0, min(chunk, rows - replica * chunk)) for replica in range(replicas))


def cycle_sizes(global_batch: int, replicas: int) -> tuple[int, ...]:
    """Rule B: one turn of the cycle; the first ``global_batch % replicas`` sizes are one larger than the others."""
    base, larger = divmod(global_batch, replicas)
    return tuple(base + (replica < larger) for replica in range(replicas))


def fill_sizes(sizes: Sequence[int], rows: int) -> tuple[int, ...]:
    """``rows`` poured into ``sizes`` from the left: the current piece ends short, later ones are empty."""
    filled = []
    for size in sizes:
        filled.append(min(size, rows))
        rows -= filled[-1]
    return tuple(filled)


def batch_sizes_for_worker(
    global_batch: int, num_workers: int, num_replicas_per_worker: int, worker_index: int
) -> tuple[int, ...]:
    """Rule B for one of several workers that all read the whole dataset.

    The cycle has one size per replica of all workers and sums to ``global_batch``; it is rotated by the replicas of the
    workers before this one, so that every global step uses exactly ``global_batch`` rows.
    """
    if global_batch < 0:
        raise InvalidValueError(f"global batch {global_batch} is negative; use 0 or more rows")
    if num_workers < 1 or num_replicas_per_worker < 1:
        raise InvalidValueError(
            f"{num_workers} workers with {num_replicas_per_worker} replicas each: both must be at least 1"
        )
    if not 0 <= worker_index < num_workers:
        raise InvalidValueError(f"worker index {worker_index} is not in 0..{num_workers - 1}")
    sizes = cycle_sizes(global_batch, num_workers * num_replicas_per_worker)
    start = worker_index * num_replicas_per_worker
    return sizes[start:] + sizes[:start]


def even_steps(batches: Iterable[int], replicas: int) -> Iterator[tuple[int, ...]]:
    """Rule A over a stream of batch row counts: one row table per step; a batch without rows makes no step."""
    for rows in batches:
        if rows:
            yield even_sizes(rows, replicas)


def cycled_steps(batches: Iterable[int], global_batch: int, replicas: int) -> Iterator[tuple[int, ...]]:
    """Rule B over a stream of batch row counts: one row table per step; only the last can hold less than a turn."""
    if global_batch < 1:
        raise InvalidValueError(f"global batch {global_batch} holds no rows; use a batch of at least 1")
    sizes = cycle_sizes(global_batch, replicas)
    waiting = 0
    for rows in batches:
        waiting += rows
        while waiting >= global_batch:
            yield sizes
            waiting -= global_batch
    if waiting:
        yield fill_sizes(sizes, waiting)
