"""Arguments whose arrays a program takes for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from drumline.distribute.tracing.arguments import StepArguments
from drumline.distribute.tracing.known_trees import picker
from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.per_replica import PerReplica


class GivenArgument:
    """The leaves of one argument that a program was compiled to take."""

    def __init__(self, name: str, leaves: Sequence[int]) -> None:
        self.name = name
        self._leaves = leaves
        self._pick = picker(leaves)
        self._are_arrays: bool | None = None
        self._unused: list[int] | None = None

    def take(self, arguments: StepArguments) -> Sequence[jax.Array]:
        """Its arrays, after the program ran. Those that XLA had no use for are deleted too."""
        if arguments.others is not None and self._are_arrays is None:
            self._are_arrays = set(self._leaves).isdisjoint(arguments.others)
        picked = self._pick(arguments.leaves)
        if arguments.others is None or not self._are_arrays:
            stacked = [leaf.stacked if isinstance(leaf, PerReplica) else leaf for leaf in picked]
            arrays = [leaf for leaf in stacked if isinstance(leaf, jax.Array)]  # of host arrays it had a copy
            for array in arrays:
                if not array.is_deleted():
                    array.delete()
            return arrays
        if self._unused is None:  # the same in each call of the program
            self._unused = [i for i, array in enumerate(picked) if not array.is_deleted()]
        for i in self._unused:
            picked[i].delete()
        return picked


def are_shared(given: list[Any], others: Sequence[list[Any]]) -> bool:
    """Whether an array of ``given`` is there twice, or among ``others`` too."""
    ids = set(map(id, given))
    return len(ids) < len(given) or not all(ids.isdisjoint(map(id, group)) for group in others)


def find_token(group: DeviceGroup, are_mirrored: Sequence[bool], *, gives_stacked: bool) -> tuple[bool, int]:
    """Whether a program needs one more output for the in-flight window to wait for, and which output that is.

    It must be one that no later step is given for good: not mirrored, as state is, and no stacked one in a program that
    ``gives_stacked`` arrays.
    """
    kept = [i for i, is_mirrored in enumerate(are_mirrored) if not is_mirrored]
    if group.window.limit is None:
        kept = [*range(len(are_mirrored))]
    elif gives_stacked:
        kept = []
    return not kept, kept[-1] if kept else -1
