"""Arguments of a program that must be the same on every replica, as state is that is handed from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from drumline.distribute.observe import ArgumentsObserver
from drumline.distribute.observe.divergence import CopyChecksums, checksum_arguments
from drumline.distribute.tracing.arguments import StepArguments
from drumline.distribute.tracing.leaf_names import argument_paths
from drumline.distribute.tracing.step import TracedStep
from drumline.distribute.values.device_group import DeviceGroup


class ComparedArguments:
    """The leaves of a program's arguments of which each device has a copy.

    ``kinds``: of those it takes; ``order``: in which of these places is each that it is called with.
    """

    def __init__(self, group: DeviceGroup, traced: TracedStep, kinds: Sequence[str], order: Sequence[int]) -> None:
        self._group = group
        self._parameters = traced.parameters
        self._places = [(traced.leaf_indices[at], kinds[at] == "plain") for at in order]
        self._paths: list[str] | None = None

    def tell(self, comparer: ArgumentsObserver, steps: range, arguments: StepArguments, leaves: Sequence[Any]) -> None:
        """Before a program that does ``steps`` takes ``leaves``: their checksums, if they are wanted."""
        if comparer.wants_arguments(steps):
            sums = self._checksum(arguments, leaves)
            if sums is not None:
                comparer.arguments_taken(steps, sums)

    def _checksum(self, arguments: StepArguments, leaves: Sequence[Any]) -> CopyChecksums | None:
        """None where no leaf has copies; a Python number has none, JAX gives it to each device by itself."""
        if self._group.num_replicas_in_sync == 1:
            return None
        if self._paths is None:
            self._paths = argument_paths(arguments.tree, self._parameters)
        copied = {
            self._paths[index]: leaf
            for (index, is_copied), leaf in zip(self._places, leaves, strict=False)
            if is_copied and isinstance(leaf, jax.Array)
        }
        return checksum_arguments(self._group, [*copied], [*copied.values()]) if copied else None
