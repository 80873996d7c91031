"""Which worker reads what, and which splitting rule that implies."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from drumline.distribute.errors import InvalidValueError
from drumline.distribute.input.splitting import SplitRule

#: ``Dataset.shard(SHARD_HINT, SHARD_HINT)`` marks where policy HINT puts the worker's own shard.
SHARD_HINT = -1


class AutoShardPolicy(IntEnum):
    """How a dataset is divided between workers. With one worker it only chooses the splitting rule."""

    OFF = -1
    """Every worker reads everything; sizes cycle, rotated per worker."""
    AUTO = 0
    """FILE for datasets that read files, DATA for all others."""
    FILE = 1
    """Worker i reads files i, i + workers, ..."""
    DATA = 2
    """Every worker reads everything and keeps each workers-th piece."""
    HINT = 3
    """The marker ``shard(SHARD_HINT, SHARD_HINT)`` becomes the worker's shard."""

    @classmethod
    def of(cls, value: AutoShardPolicy | str | int) -> AutoShardPolicy:
        """The policy itself, its name in any case, or its number."""
        try:
            return cls[value.upper()] if isinstance(value, str) else cls(value)
        except (KeyError, ValueError):
            names = ", ".join(cls.__members__)
            raise InvalidValueError(f"unknown auto-shard policy {value!r}; use one of {names}") from None


def effective_policy(policy: AutoShardPolicy, files: Sequence[str], num_workers: int = 1) -> AutoShardPolicy:
    """AUTO resolved to FILE or DATA; ValueError where the files can't be shared by ``num_workers``."""
    if policy is AutoShardPolicy.AUTO:
        policy = AutoShardPolicy.FILE if files else AutoShardPolicy.DATA
    if policy is AutoShardPolicy.FILE and num_workers > 1:
        if not files:
            raise InvalidValueError(
                "policy FILE needs a dataset that reads files and this one reads none; use DATA or OFF"
            )
        if len(files) < num_workers:
            raise InvalidValueError(
                f"{len(files)} files can't be shared by {num_workers} workers; write at least {num_workers} files, "
                "or use policy DATA"
            )
    return policy


def split_rule(policy: AutoShardPolicy, files: Sequence[str], batch_size: int) -> SplitRule:
    """The rule in force. ``batch_size`` is the inferred global batch, -1 where it can't be inferred."""
    if batch_size < 1 or effective_policy(policy, files) is AutoShardPolicy.DATA:
        return SplitRule.EACH_BATCH
    return SplitRule.CYCLE_SIZES


def files_of_worker(files: Sequence[str], num_workers: int, worker_index: int) -> tuple[str, ...]:
    """The files that policy FILE gives to one worker."""
    return tuple(files[worker_index::num_workers])
