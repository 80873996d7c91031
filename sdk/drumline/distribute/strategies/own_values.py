"""Values that each of several processes makes for its own replicas, as one value of all replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from drumline.distribute.errors import InvalidValueError, UnsupportedError
from drumline.distribute.tracing.arguments import is_array_or_number
from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.indexed_slices import is_slices
from drumline.distribute.values.per_replica import PerReplica, PerReplicaSlices

_WHAT = "distribute_values_from_function"


def join_own_values(group: DeviceGroup, columns: Sequence[Sequence[Any]]) -> list[PerReplica]:
    """Of each column, the values of this process's replicas, the value of all replicas.

    Numbers need one shape and type on all replicas: UnsupportedError names those that differ. Other objects stay with
    the process that made them.
    """
    assert group.exchange is not None
    told = group.exchange.tell(_WHAT, [_kinds(column) for column in columns])
    _require_one_structure(group, list(map(len, told)))
    joined = []
    for number, column in enumerate(columns):
        joined.append(_join(group, column, [kind for process in told for kind in process[number]]))
    return joined


def _require_one_structure(group: DeviceGroup, leaves: list[int]) -> None:
    if len(set(leaves)) > 1:
        shown = ", ".join(f"{count} in process {p}" for p, count in zip(group.processes, leaves, strict=True))
        raise InvalidValueError(f"value_fn returned nests of different numbers of leaves: {shown}")


def _join(group: DeviceGroup, column: Sequence[Any], kinds: list[str]) -> PerReplica:
    if len(kinds) < group.size or "" in kinds:
        return PerReplica.from_components(column, replicas=group.size)
    if len(set(kinds)) > 1:
        raise UnsupportedError(
            f"{_WHAT}: over several processes all replicas' values need one shape and type; got "
            f"{', '.join(dict.fromkeys(kinds))}. Pad them to one shape"
        )
    if not is_slices(column[0]):
        return PerReplica.from_stacked(group.stack_copies(column))
    values, indices = zip(*(one.parts() for one in column), strict=True)
    shapes = tuple(one.dense_shape for one in column)
    one, two = (PerReplica.from_stacked(group.stack_copies(part)) for part in (values, indices))
    return PerReplicaSlices(one, two, shapes)


def _kinds(column: Sequence[Any]) -> list[str]:
    """Shape and type of each value; nothing for one that is no number."""
    return [_kind(value) for value in column]


def _kind(value: Any) -> str:
    if is_slices(value):
        return f"slices of {_kind(value.values)} at {_kind(value.indices)}"
    if not is_array_or_number(value):
        return ""
    array = value if hasattr(value, "dtype") else np.asarray(value)
    return f"{array.dtype}{list(array.shape)}"
