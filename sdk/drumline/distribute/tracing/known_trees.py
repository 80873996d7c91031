"""Signatures of argument trees with many arrays, looked up without a Python call per array.

A state of hundreds of leaves goes through a step again and again. What comes back from a program has the very shape
and sharding objects that it had before; so lists of them, which C code collects, are compared by identity.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Fewer leaves are told apart one by one as fast.
MANY_LEAVES = 16
#: Trees known at most; then all are forgotten, so that new shapes in each step leak nothing.
MAX_KNOWN = 256

_shapes_of = operator.attrgetter("aval")
_shardings_of = operator.attrgetter("sharding")
# What the public property, a Python function, reads; taken where this JAX's arrays have it.
_fields_of = operator.attrgetter("_sharding")


@dataclass(slots=True)
class KnownTree:
    """A tree as it was last seen. ``arrays``: the positions of its jax.Arrays, ``others``: of its other leaves."""

    types: list[type]
    arrays: Sequence[int]
    others: Sequence[int]
    key: Hashable
    pick: Callable[[Sequence[Any]], Sequence[Any]]
    shapes: list[Any]
    shardings: list[Any] = field(default_factory=list)

    def fits(self, leaves: Sequence[Any]) -> bool:
        """Whether the arrays among ``leaves`` have the shapes and dtypes of those that were seen."""
        if list(map(type, leaves)) != self.types:
            return False
        shapes = list(map(_shapes_of, self.pick(leaves)))
        if shapes != self.shapes:
            return False
        self.shapes = shapes  # the same objects come next time
        return True

    def are_on(self, sharding: Any, leaves: Sequence[Any]) -> bool:
        """Whether all its arrays lie as ``sharding`` says."""
        arrays = self.pick(leaves)
        read = _fields_of if arrays and hasattr(arrays[0], "_sharding") else _shardings_of
        shardings = list(map(read, arrays))
        if shardings != self.shardings and any(each != sharding for each in shardings):
            return False
        self.shardings = shardings
        return True


class KnownTrees:
    """Those of one strategy."""

    def __init__(self) -> None:
        self._trees: dict[Any, KnownTree] = {}
        self._keys: dict[Hashable, int] = {}
        self._numbers = itertools.count()

    def find(self, tree: Any, leaves: Sequence[Any]) -> KnownTree | None:
        """What is known of ``leaves`` of ``tree``."""
        known = self._trees.get(tree)
        return known if known is not None and known.fits(leaves) else None

    def learn(self, tree: Any, leaves: Sequence[Any], arrays: Sequence[int], keys: Sequence[Hashable]) -> KnownTree:
        """Notes a tree. ``keys``: what the programs for its arrays depend on."""
        if len(self._trees) >= MAX_KNOWN or len(self._keys) >= MAX_KNOWN:
            self._trees.clear()
            self._keys.clear()
        of_arrays = (tuple(arrays), tuple(keys))
        number = self._keys.get(of_arrays)
        if number is None:
            number = self._keys[of_arrays] = next(self._numbers)
        chosen = set(arrays)
        others = [i for i in range(len(leaves)) if i not in chosen]
        pick = picker(arrays)
        known = KnownTree(list(map(type, leaves)), arrays, others, ("arrays", number), pick, [])
        known.shapes = list(map(_shapes_of, pick(leaves)))
        self._trees[tree] = known
        return known


def picker(positions: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """What takes the values at ``positions`` out of a list, in C."""
    if not positions:
        return lambda _: ()
    if len(positions) == 1:
        (only,) = positions
        return lambda values: (values[only],)
    return operator.itemgetter(*positions)
