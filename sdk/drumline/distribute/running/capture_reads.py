"""What a function captures, as it is recorded: how captured values are read, and what of each is compared.

The values form a list: first the roots (the function and what its arguments hold that is part of the program), then
what each read takes from values before it. A read raises where it can't, or where what it reads has another structure
than when it was recorded.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter, itemgetter, length_hint
from typing import Any, NamedTuple, cast

from drumline.distribute.running.captured_values import describe
from drumline.distribute.running.code_uses import Use

#: Takes values from those read so far and adds them; raises where the structure is another.
Read = Callable[[list[Any]], None]
#: Paths whose rebinding by traces is ignored from this many on: counters that the step itself keeps.
IGNORED_FROM = 2
#: Follows the names of values that were found under a name met before. It can be another one each time.
REPEATED = " #"


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

    def note(self, before: Sequence[Position], after: Sequence[Position]) -> bool:
        """Learns from what was captured before and after a trace; True if there was anything to learn."""
        then = {position.path: position for position in before}
        is_changed = False
        for now in after:
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


class Recorded(NamedTuple):
    """The captured values of one state of a function: the first are the roots."""

    values: list[Any]
    positions: list[Position]
    reads: list[Read]
    roots: int


@dataclass(slots=True)
class Names:
    """Names wanted from one namespace: a function's globals or an object's ``__dict__``."""

    holder: int
    through: str
    prefix: str
    taken: dict[str, int] = field(default_factory=dict)
    wanted: dict[str, list[tuple[Use, Any]]] = field(default_factory=dict)


def attributes_reader(index: int, names: Sequence[str]) -> Read:
    """Attributes of the value at ``index``."""
    if len(names) == 1:
        one = attrgetter(names[0])
        return lambda values: values.append(one(values[index]))
    take = attrgetter(*names)
    return lambda values: values.extend(take(values[index]))


def names_reader(index: int, through: str, names: Sequence[str]) -> Read:
    """Names of its namespace: a function's ``__globals__``, or ``__dict__``."""
    namespace, take = attrgetter(through), itemgetter(*names)
    if len(names) == 1:
        return lambda values: values.append(take(namespace(values[index])))
    return lambda values: values.extend(take(namespace(values[index])))


def absence_reader(index: int, through: str, names: Sequence[str]) -> Read:
    """Adds nothing; raises where the namespace has one of the names."""
    namespace = attrgetter(through)

    def check(values: list[Any]) -> None:
        present = namespace(values[index])
        for name in names:
            if name in present:
                raise ChangedError

    return check


def all_names_reader(index: int, names: tuple[str, ...]) -> Read:
    """All that an object holds, under the same names as before."""

    def read(values: list[Any]) -> None:
        own = values[index].__dict__
        if tuple(own) != names:
            raise ChangedError
        values.extend(own.values())

    return read


def cells_reader(index: int, filled: list[int]) -> Read:
    """What a function closes over, in the cells that hold something."""
    if filled == list(range(len(filled))):
        count = len(filled)

        def read_all(values: list[Any]) -> None:
            cells = values[index].__closure__
            if len(cells) < count:
                raise ChangedError
            values.extend([cell.cell_contents for cell in cells])

        return read_all
    return lambda values: values.extend([values[index].__closure__[i].cell_contents for i in filled])


def codes_reader(indices: list[int]) -> Read:
    """The code objects of functions."""
    return lambda values: values.extend([values[index].__code__ for index in indices])


def module_reader(name: str) -> Read:
    """A module that the function imports itself."""
    return lambda values: values.append(sys.modules[name])


def items_reader(index: int, size: int, *, is_open: bool) -> Read:
    """The items of a sequence or set; ``is_open``: its first ones, whatever was added since."""

    def read(values: list[Any]) -> None:
        items = values[index]
        if len(items) < size if is_open else len(items) != size:
            raise ChangedError
        values.extend(islice(items, size))

    return read


def mapping_reader(index: int, keys: list[Any], *, is_open: bool) -> Read:
    """Keys, then values; ``is_open``: of these keys, whatever was added since."""
    take = itemgetter(*keys) if keys else None

    def read(values: list[Any]) -> None:
        mapping = values[index]
        if is_open:
            values.extend(keys)
            if take is not None:
                values.extend(take(mapping) if len(keys) > 1 else (take(mapping),))
            return
        if len(mapping) != len(keys):
            raise ChangedError
        values.extend(mapping)
        values.extend(mapping.values())

    return read


def is_empty(cell: types.CellType) -> bool:
    """A cell of a name that nothing was assigned to yet."""
    try:
        cell.cell_contents  # noqa: B018  # raises where there is nothing
    except ValueError:
        return True
    return False


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
