"""Finds what a function captures: closure, defaults, globals and attributes, followed through helper functions."""

from __future__ import annotations

import functools
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from drumline.distribute.running import capture_reads as reads
from drumline.distribute.running import captured_values as values_of
from drumline.distribute.running.capture_reads import (
    REPEATED,
    Effects,
    Names,
    Position,
    Read,
    Recorded,
    no_content,
    position_of,
    type_and_size,
    type_only,
)
from drumline.distribute.running.code_uses import CodeUses, Use, code_uses

#: Helper functions are followed this deep; the step itself is 0. Each level is read again in every call.
MAX_DEPTH = 3
#: Values looked at in all; what comes later is opaque.
MAX_POSITIONS = 1024
#: Functions of libraries inside each other, whose closures are followed.
MAX_LIBRARY_DEPTH = 8

_WHOLE = Use(whole=True)


@dataclass(frozen=True, slots=True)
class _Context:
    """How a value was reached. ``leaves``: what the container around it may still hold; ``owner``: position of self."""

    depth: int = 0
    library_depth: int = 0
    leaves: list[int] | None = None
    owner: int | None = None
    is_library_name: bool = False


def record(roots: Sequence[Any], effects: Effects) -> Recorded:
    """What ``roots``, a function first, capture now."""
    return _Recorder(roots, effects).run()


class _Recorder:
    def __init__(self, roots: Sequence[Any], effects: Effects) -> None:
        self._roots = roots
        self._effects = effects
        self._values: list[Any] = []
        self._positions: list[Position | None] = []
        self._paths: list[str] = []
        self._met: Counter[str] = Counter()
        self._reads: list[Read] = []
        self._pending: list[tuple[int, Use, _Context]] = []
        self._seen: dict[int, int] = {}
        self._namespaces: dict[int, Names] = {}
        self._codes: list[int] = []
        self._wholes: set[int] = set()
        self._attributes: dict[tuple[int, str], int] = {}

    def run(self) -> Recorded:
        for number, root in enumerate(self._roots):
            is_called = number == 0 and not isinstance(root, type) and values_of.has_attributes(root)
            use = Use(attributes={"__call__": _WHOLE}) if is_called else _WHOLE
            self._place("" if number == 0 else f"argument {number}", root, use, _Context())
        while self._pending or any(names.wanted for names in self._namespaces.values()):
            wave, self._pending = self._pending, []
            for index, use, context in wave:
                self._visit(index, use, context)
            self._read_codes()
            for names in list(self._namespaces.values()):
                self._read_names(names)
        positions = [position for position in self._positions if position is not None]
        assert len(positions) == len(self._values)
        return Recorded(self._values, positions, self._reads, len(self._roots))

    # adding values

    def _place(self, path: str, value: Any, use: Use, context: _Context) -> int:
        self._values.append(value)
        self._met[path] += 1
        self._paths.append(path if self._met[path] == 1 else f"{path}{REPEATED}{self._met[path]}")
        self._positions.append(None)
        self._pending.append((len(self._values) - 1, use, context))
        return len(self._values) - 1

    def _read(self, read: Read, found: Iterable[tuple[str, Use, _Context]]) -> None:
        """Adds what ``read`` takes; ``found`` says what each of it is."""
        taken = list(self._values)
        read(taken)
        new = taken[len(self._values) :]
        self._reads.append(read)
        for value, (path, use, context) in zip(new, found, strict=True):
            self._place(path, value, use, context)

    def _set(self, index: int, content_of: Callable[[Any], Any], *, is_opaque: bool = False) -> None:
        self._positions[index] = position_of(self._paths[index], content_of, self._values[index], is_opaque=is_opaque)

    def _set_opaque(self, index: int) -> None:
        self._set(index, id, is_opaque=True)

    # by kind of value

    def _visit(self, index: int, use: Use, context: _Context) -> None:
        value = self._values[index]
        if self._positions[index] is not None:
            self._visit_again(self._seen.get(id(value), index), use, context)
        elif self._effects.is_ignored(self._paths[index]):
            self._set(index, no_content)
        elif values_of.is_simple(value):
            self._set(index, values_of.simple_content)
        elif values_of.is_small_array(value):
            self._set(index, values_of.array_content)
        elif id(value) in self._seen:
            first = self._seen[id(value)]
            self._positions[index] = Position(
                self._paths[index], no_content, None, values_of.describe(value), same_as=first
            )
            self._visit_again(first, use, context)
        elif len(self._values) > MAX_POSITIONS:
            self._set_opaque(index)
        else:
            self._seen[id(value)] = index
            self._visit_object(index, use, context)

    def _visit_again(self, index: int, use: Use, context: _Context) -> None:
        """Another name of an object, or another use of it."""
        value, position = self._values[index], self._positions[index]
        if position is None or position.is_opaque:
            return
        if isinstance(value, types.FunctionType):
            self._use_owner(code_uses(value.__code__), context)
        elif isinstance(value, types.ModuleType):
            self._want_attributes(index, value.__dict__, use, context)
        elif values_of.has_attributes(value):
            self._visit_attributes(index, use, context)

    def _visit_object(self, index: int, use: Use, context: _Context) -> None:
        value = self._values[index]
        if isinstance(value, types.ModuleType):
            self._visit_module(index, use, context)
        elif context.is_library_name and values_of.is_library_callable(value):
            self._set(index, id)
        elif isinstance(value, types.FunctionType):
            self._visit_function(index, use, context)
        elif isinstance(value, (types.MethodType, functools.partial)):
            self._visit_bound(index, context)
        elif isinstance(value, type) and values_of.has_attributes(value):
            self._set(index, id)
            self._visit_attributes(index, use, context)
        elif values_of.is_by_identity(value):
            self._set(index, id)
        elif isinstance(value, values_of.CONTAINERS):
            self._visit_container(index, context)
        else:
            self._visit_other(index, use, context)

    def _visit_other(self, index: int, use: Use, context: _Context) -> None:
        value = self._values[index]
        if values_of.has_attributes(value):
            self._set(index, type if values_of.is_record(value) else id)
            self._visit_attributes(index, use, context)
        elif parts := values_of.wrapped_parts(value):
            self._set(index, id)
            found = [(self._path(index, part), _WHOLE, context) for part in parts]
            self._read(reads.attributes_reader(index, parts), found)
        elif values_of.is_value_of_a_library(value):
            self._set(index, values_of.typed_value)
        else:
            self._set_opaque(index)

    def _visit_module(self, index: int, use: Use, context: _Context) -> None:
        module = self._values[index]
        is_library = values_of.is_library_module(module.__name__)
        # The whole of a user's module: what is taken from it is not known.
        self._set(index, id, is_opaque=use.whole and not is_library)
        inner = replace(context, is_library_name=is_library, owner=None, leaves=None)
        self._want_attributes(index, module.__dict__, use, inner)

    def _visit_container(self, index: int, context: _Context) -> None:
        value, path = self._values[index], self._paths[index]
        grown_from = self._effects.grown.get(path)
        size = len(value) if grown_from is None or isinstance(value, Mapping) else grown_from
        leaves = context.leaves if context.leaves is not None else [values_of.MAX_LEAVES]
        leaves[0] -= size
        if leaves[0] < 0:
            self._set_opaque(index)
            return
        inner = replace(context, leaves=leaves, owner=None, is_library_name=False)
        self._set(index, type_and_size if grown_from is None else type_only)
        if isinstance(value, Mapping):
            keys = list(value)
            if grown_from is not None and not all(map(values_of.is_simple, keys)):
                return
            found = [(f"a key of {path}", _WHOLE, inner)] * size
            found += [(f"{path}[{values_of.describe(key)}]", _WHOLE, inner) for key in keys]
            self._read(reads.mapping_reader(index, keys, is_open=grown_from is not None), found)
        elif isinstance(value, values_of.SEQUENCES) or grown_from is None:
            found = [(f"{path}[{i}]", _WHOLE, inner) for i in range(size)]
            self._read(reads.items_reader(index, size, is_open=grown_from is not None), found)

    # functions

    def _visit_bound(self, index: int, context: _Context) -> None:
        """A method and its self, or a partial and its arguments."""
        value, path = self._values[index], self._paths[index]
        inner = replace(context, leaves=None, is_library_name=False)
        if isinstance(value, types.MethodType):
            self._set(index, type, is_opaque=context.is_library_name)  # random.uniform: of an object that changes
            bound = replace(inner, owner=len(self._values))
            found = [(path.rpartition(".")[0] or "self", Use(), inner), (self._path(index, "__func__"), _WHOLE, bound)]
            self._read(reads.attributes_reader(index, ("__self__", "__func__")), found)
            return
        self._set(index, type)
        arguments = (f"arguments of {path}", _WHOLE, inner)
        found = [
            (self._path(index, "func"), _WHOLE, replace(inner, owner=None)),
            arguments,
            (f"keywords of {path}", _WHOLE, inner),
        ]
        self._read(reads.attributes_reader(index, ("func", "args", "keywords")), found)

    def _visit_function(self, index: int, use: Use, context: _Context) -> None:
        function, path = self._values[index], self._paths[index]
        is_library = values_of.is_library_file(function.__code__.co_filename)
        captures_nothing = not (function.__closure__ or function.__defaults__ or function.__kwdefaults__)
        if is_library and captures_nothing:
            self._set(index, id)
            self._use_owner(CodeUses(first=_WHOLE), context)
            return
        if context.depth > MAX_DEPTH or context.library_depth > MAX_LIBRARY_DEPTH:
            self._set_opaque(index)
            return
        uses = CodeUses(first=_WHOLE) if is_library else code_uses(function.__code__)
        self._set(index, values_of.function_content, is_opaque=uses.reads_anything)
        if index >= len(self._roots):
            self._codes.append(index)
        self._use_owner(uses, context)
        deeper = _Context(context.depth + (not is_library), context.library_depth + is_library)
        if not is_library:
            self._want_attributes(index, function.__globals__, Use(attributes=uses.globals), deeper)
            self._want_attributes(index, function.__dict__, use, deeper)
            self._read_modules(uses, deeper)
        self._read_cells(index, function, uses, deeper)
        for attribute in ("__defaults__", "__kwdefaults__"):
            if getattr(function, attribute):
                name = f"defaults of {path or function.__name__}"
                self._read(reads.attributes_reader(index, (attribute,)), [(name, _WHOLE, deeper)])

    def _use_owner(self, uses: CodeUses, context: _Context) -> None:
        """What a method takes of its self."""
        if context.owner is not None:
            inner = replace(context, owner=None, leaves=None, is_library_name=False)
            self._pending.append((context.owner, uses.first, inner))

    def _read_cells(self, index: int, function: types.FunctionType, uses: CodeUses, context: _Context) -> None:
        names = function.__code__.co_freevars
        filled = [i for i, cell in enumerate(function.__closure__ or ()) if not reads.is_empty(cell)]
        if filled:
            found = [(names[i], uses.free.get(names[i], _WHOLE), context) for i in filled]
            self._read(reads.cells_reader(index, filled), found)

    def _read_modules(self, uses: CodeUses, context: _Context) -> None:
        for name, use in uses.modules.items():
            if name in sys.modules:
                self._read(reads.module_reader(name), [(name, use, context)])

    def _read_codes(self) -> None:
        if not self._codes:
            return
        indices, self._codes = self._codes, []
        taken = len(self._values)
        found = [(f"the code of {self._paths[index]}", _WHOLE, _Context()) for index in indices]
        self._read(reads.codes_reader(indices), found)
        for index in range(taken, len(self._values)):
            self._set(index, values_of.code_content)
        self._pending = [pending for pending in self._pending if pending[0] < taken]

    # attributes

    def _visit_attributes(self, index: int, use: Use, context: _Context) -> None:
        inner = replace(context, owner=None, leaves=None, is_library_name=False)
        if use.whole and index not in self._wholes:
            self._wholes.add(index)
            if isinstance(self._values[index], type):
                self._read_members(index, inner)
            else:
                self._read_everything(index, replace(inner, leaves=context.leaves))
        for name, inner_use in use.attributes.items():
            known = self._attributes.get((index, name))
            if known is not None:
                self._pending.append((known, inner_use, inner))
            else:
                self._read_attribute(index, name, inner_use, inner)

    def _read_attribute(self, index: int, name: str, use: Use, context: _Context) -> None:
        value = self._values[index]
        is_class = isinstance(value, type)
        kind = value if is_class else type(value)
        own = None if is_class else values_of.dict_of(value)
        member = values_of.member_of(kind, name)
        if own is not None and name in own and not values_of.comes_before_own(member):
            self._want_attributes(index, own, Use(attributes={name: use}), context)
            return
        if member is None:
            if own is not None:
                self._read(reads.absence_reader(index, "__dict__", [name]), [])
            if not is_class and name != "__getattr__" and values_of.member_of(kind, "__getattr__") is not None:
                self._visit_attributes(index, Use(whole=True, attributes={"__getattr__": _WHOLE}), context)
            return
        if own is not None and not values_of.comes_before_own(member):
            self._read(reads.absence_reader(index, "__dict__", [name]), [])
        read, is_method = values_of.member_reader(index, name, member, is_class=is_class)
        self._attributes[index, name] = len(self._values)
        bound = replace(context, owner=index) if is_method else context
        self._read(read, [(self._path(index, name), use if not is_method else _WHOLE, bound)])

    def _read_everything(self, index: int, context: _Context) -> None:
        """All attributes of an object, and what its class holds."""
        value = self._values[index]
        own = values_of.dict_of(value)
        if own:
            names = tuple(own)
            found = [(self._path(index, name), _WHOLE, context) for name in names]
            self._read(reads.all_names_reader(index, names), found)
        slots = values_of.filled_slots(value)
        if slots:
            found = [(self._path(index, name), _WHOLE, context) for name in slots]
            self._read(reads.attributes_reader(index, slots), found)
        kind = f"the class of {self._paths[index]}"
        self._read(lambda values: values.append(type(values[index])), [(kind, _WHOLE, context)])

    def _read_members(self, index: int, context: _Context) -> None:
        """Values and functions of a user's class, and of those that it inherits from."""
        kind = self._values[index]
        names = values_of.member_names(kind)
        if names:
            uses = Use(attributes=dict.fromkeys(names, _WHOLE))
            self._want_attributes(index, kind.__dict__, uses, context)
        found = [(f"a base of {kind.__qualname__}", _WHOLE, context)] * len(kind.__bases__)
        self._read(lambda values: values.extend(values[index].__bases__), found)

    # names of namespaces

    def _want_attributes(self, index: int, namespace: Any, use: Use, context: _Context) -> None:
        if not use.attributes:
            return
        value = self._values[index]
        through = "__globals__" if namespace is getattr(value, "__globals__", None) else "__dict__"
        key = index if isinstance(value, type) else id(namespace)
        names = self._namespaces.setdefault(key, Names(index, through, self._prefix(index, through)))
        for name, inner_use in use.attributes.items():
            if through == "__dict__" and name not in namespace and not isinstance(value, types.ModuleType):
                continue  # a function's own attributes, such as __name__
            if name in names.taken:
                self._pending.append((names.taken[name], inner_use, context))
            else:
                names.wanted.setdefault(name, []).append((inner_use, context))

    def _read_names(self, names: Names) -> None:
        if not names.wanted:
            return
        wanted, names.wanted = names.wanted, {}
        namespace = getattr(self._values[names.holder], names.through)
        present = [name for name in wanted if name in namespace]
        absent = [name for name in wanted if name not in namespace]
        if absent:
            # In builtins, or nowhere: that must stay so.
            self._read(reads.absence_reader(names.holder, names.through, absent), [])
        if not present:
            return
        first = len(self._values)
        found = [(f"{names.prefix}{name}", *wanted[name][0]) for name in present]
        self._read(reads.names_reader(names.holder, names.through, present), found)
        for position, name in enumerate(present, first):
            names.taken[name] = position
            self._pending += [(position, use, context) for use, context in wanted[name][1:]]

    def _path(self, index: int, name: str) -> str:
        return f"{self._paths[index]}.{name}"

    def _prefix(self, index: int, through: str) -> str:
        value = self._values[index]
        if through == "__dict__":
            return f"{self._paths[index]}."
        module = str(value.__globals__.get("__name__"))
        root = next((root for root in self._values[:8] if isinstance(root, types.FunctionType)), value)
        return "" if value.__globals__ is root.__globals__ else f"{module}."
