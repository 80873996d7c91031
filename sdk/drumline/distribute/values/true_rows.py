"""Values with the rows of a padded batch, without those that only fill it up."""

from __future__ import annotations

import jax
import numpy as np

from drumline.distribute.base.runtime import is_abstract
from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.per_replica import PerReplica


def true_rows(group: DeviceGroup, filled: jax.Array, weights: PerReplica) -> PerReplica:
    """Of ``filled``, [replicas, rows, ...], the rows that count; ``weights``: those of its batch.

    They are cut on the host: a program would be compiled for their shapes.
    """
    rows = weights.rows
    assert rows is not None
    whole = PerReplica.from_stacked(filled)
    pairs = zip(whole.values, group.local_replicas, strict=True)
    if is_abstract():  # there is nothing on a host, and no device
        kept = [own[: rows[replica]] for own, replica in pairs]
    else:
        kept = jax.device_put([np.asarray(own)[: rows[replica]] for own, replica in pairs], list(group.local_devices))
    value = PerReplica.from_components(kept, rows, whole.num_replicas)
    value.filled, value.row_weights = filled, weights
    return value


def without_filling(group: DeviceGroup, value: PerReplica) -> PerReplica:
    """A batch, or a part of it, with its true rows alone; any other value as it is."""
    weights = value.row_weights
    if weights is None or value.stacked is None or weights.rows is None or value.rows == weights.rows:
        return value
    return true_rows(group, value.stacked, weights)


def equal_rows(shape: tuple[int, ...], num_replicas: int) -> tuple[int, ...] | None:
    """The row table of a value that has ``shape`` on each replica."""
    return (shape[0],) * num_replicas if shape else None
