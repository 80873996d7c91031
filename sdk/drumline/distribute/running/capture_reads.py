"""How captured values are read: each read takes from the values before it and adds what it finds.

A read raises where it can't, or where what it reads has another structure than when it was recorded.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any

from drumline.distribute.running.captures import ChangedError, Read
from drumline.distribute.running.code_uses import Use


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
