"""What a step captured when it was traced, and whether a function captures the same now.

The captured values form a list: first the roots (the function and what its arguments hold that is part of the program),
then what each read takes from values before it. Most calls find the very same objects: comparing their ids is enough.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from operator import length_hint
from typing import Any, cast

import numpy as np

from drumline.distribute.running.captured_values import array_content, describe, function_content

#: Takes values from those read so far and adds them; raises where the structure is another.
Read = Callable[[list[Any]], None]
#: Paths whose rebinding by traces is ignored from this many on: counters that the step itself keeps.
IGNORED_FROM = 2
#: Follows the names of values that were found under a name met before. It can be another one each time.
REPEATED = " #"
_DEAD = object()
_bytes_of = np.ndarray.tobytes
#: Differences named in a message.
MAX_NAMED = 3


class ChangedError(Exception):
    """A container or namespace has another structure than when it was recorded."""


@dataclass(slots=True)
class Position:
    """One captured value: where it was found, what of it is compared, and whether only identity can tell."""

    path: str
    content_of: Callable[[Any], Hashable]
    content: Hashable
    shown: str
    is_opaque: bool = False
    same_as: int | None = None
    """The position that holds this very object too, and where its content is compared."""


@dataclass(slots=True)
class Effects:
    """What traces of a code change themselves, which is no change of the program: logs, memos and counters.

    ``grown``: containers that a trace added to, with their size before it. ``rebound``: how often traces changed a
    value.
    """

    grown: dict[str, int] = field(default_factory=dict)
    rebound: dict[str, int] = field(default_factory=dict)

    def note(self, before: Captures, after: Captures) -> bool:
        """Learns from what was captured before and after a trace; True if there was anything to learn."""
        then = {position.path: position for position in before.positions}
        is_changed = False
        for now in after.positions:
            old = then.get(now.path)
            if old is None or old.content == now.content or REPEATED in now.path:
                continue
            is_changed = True
            size = _size_before_growth(old, now)
            if size is not None:
                self.grown.setdefault(now.path, size)
            else:
                self.rebound[now.path] = self.rebound.get(now.path, 0) + 1
        return is_changed

    def is_ignored(self, path: str) -> bool:
        """Tells a value that every trace changes."""
        return self.rebound.get(path, 0) >= IGNORED_FROM


class Captures:
    """The captured values of one state of a function."""

    def __init__(
        self, values: Sequence[Any], positions: list[Position], reads: list[Read], roots: int, effects: Effects
    ) -> None:
        self.positions = positions
        self.is_opaque = any(position.is_opaque for position in positions)
        self._reads = reads
        self._roots = roots
        self._effects = effects
        #: Place, bytes, shape and dtype of the NumPy arrays that are compared by content.
        self._arrays: list[tuple[int, bytes, Any, Any]] = []
        for index, position in enumerate(positions):
            if position.content_of is array_content:
                dtype, shape, content = cast(tuple[Any, Any, bytes], position.content)
                self._arrays.append((index, content, shape, dtype))
        self._root_positions = positions[:roots]
        #: Code and globals of the first root, where that is a function.
        self._function = (
            cast(tuple[Any, int], positions[0].content) if positions[0].content_of is function_content else None
        )
        self._ids = [*map(id, values[roots:])]
        self._kept: list[Any] = [None] * len(self._ids)
        self._on_death: Callable[[], None] = lambda: None
        for index, value in enumerate(values[roots:]):
            self._keep(index, value)

    def watch(self, on_death: Callable[[], None]) -> None:
        """Sets what to do when an object that is compared by identity dies: the same can't be captured again."""
        self._on_death = on_death

    def are_in(self, roots: Sequence[Any]) -> bool:
        """Tells whether ``roots`` capture the same values."""
        if len(roots) != self._roots:
            return False
        values = [*roots]
        try:
            if not self._are_roots(roots):
                return False
            for read in self._reads:
                read(values)
            ids = [*map(id, values[self._roots :])]
            if ids != self._ids and not self._is_same_but_for_ids(values, ids):
                return False
            return not self._arrays or self._are_arrays(values)
        except Exception:  # noqa: BLE001  # goes through the user's objects, and what was an array may be a float now
            return False

    def _are_roots(self, roots: Sequence[Any]) -> bool:
        function = self._function
        if function is not None and len(roots) == 1:  # as in most calls
            return bool(roots[0].__code__ == function[0] and id(roots[0].__globals__) == function[1])
        return all(
            position.content_of(root) == position.content
            for root, position in zip(roots, self._root_positions, strict=True)
        )

    def _are_arrays(self, values: list[Any]) -> bool:
        """What array_content compares, written out: where there are arrays, this is most of a call's cost."""
        for index, content, shape, dtype in self._arrays:
            array = values[index]
            if _bytes_of(array) != content or array.shape != shape:
                return False
            if array.dtype is not dtype and array.dtype != dtype:
                return False
        return True

    def differences(self, other: Captures) -> list[str]:
        """What ``other`` has changed, as "name: old -> new"."""
        mine = {position.path: position for position in self.positions if REPEATED not in position.path}
        found = []
        for new in other.positions:
            old = mine.get(new.path)
            if old is None or old.content == new.content or self._effects.is_ignored(new.path):
                continue
            is_told = old.shown != new.shown
            found.append(f"{new.path}: {old.shown} -> {new.shown}" if is_told else f"a new object for {new.path}")
        return found[:MAX_NAMED]

    def opaque_parts(self) -> list[str]:
        """What can't be compared, as "name (what it is)"."""
        return [f"{position.path} ({position.shown})" for position in self.positions if position.is_opaque]

    def _is_same_but_for_ids(self, values: list[Any], ids: list[int]) -> bool:
        changed = [i for i, (now, then) in enumerate(zip(ids, self._ids, strict=True)) if now != then]
        for index in changed:
            if not self._is_same(self.positions[index + self._roots], values[index + self._roots], values):
                return False
        for index in changed:
            self._ids[index] = ids[index]
            self._keep(index, values[index + self._roots])
        return True

    def _is_same(self, position: Position, value: Any, values: list[Any]) -> bool:
        if position.same_as is not None:
            return value is values[position.same_as]
        return position.content_of(value) == position.content or self._effects.is_ignored(position.path)

    def _keep(self, index: int, value: Any) -> None:
        """Keeps the id from being given to another object unseen: by a weak reference, or by keeping the object.

        A container's id says nothing by itself, its items are compared as well.
        """
        content_of = self.positions[index + self._roots].content_of
        if content_of in (type_and_size, type_only, no_content):  # also of what has a place of its own
            return
        try:
            self._kept[index] = weakref.ref(value, _DeathCallback(self, index, is_final=content_of is id))
        except TypeError:
            self._kept[index] = value


class _DeathCallback:
    """What happens when a captured object dies."""

    def __init__(self, captures: Captures, index: int, *, is_final: bool) -> None:
        self._captures = weakref.ref(captures)
        self._index = index
        self._is_final = is_final

    def __call__(self, _: Any) -> None:
        captures = self._captures()
        if captures is not None:
            captures._ids[self._index] = 0
            if self._is_final:
                # Its id may be the next object's: nothing is equal to what is kept here.
                captures.positions[self._index + captures._roots].content = _DEAD
                captures._on_death()


def type_and_size(value: Any) -> Hashable:
    """What is compared of a container itself; its items are positions of their own."""
    # a dataset without an end has no len
    return (type(value), length_hint(value) if hasattr(type(value), "__len__") else 0)


def type_only(value: Any) -> Hashable:
    """What is compared of a container that the trace itself adds to."""
    return (type(value),)


def no_content(_: Any) -> Hashable:
    """What is compared of a value that every trace changes."""
    return None


def position_of(path: str, content_of: Callable[[Any], Hashable], value: Any, *, is_opaque: bool = False) -> Position:
    """A position that holds ``value`` now."""
    return Position(path, content_of, content_of(value), describe(value), is_opaque)


def _size_before_growth(old: Position, new: Position) -> int | None:
    if old.content_of is not type_and_size or new.content_of is not type_and_size:
        return None
    old_type, old_size = cast(tuple[type, int], old.content)
    new_type, new_size = cast(tuple[type, int], new.content)
    return old_size if old_type is new_type and old_size < new_size else None
