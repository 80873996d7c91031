"""What of the objects that a step captures is compared, to tell whether two function objects are the same program.

Numbers and strings are compared by value, arrays and variables by identity, small NumPy arrays, containers, dataclasses
and functions by content. What is left is opaque: the same only for the same function object, as for ``jax.jit``.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import os
import struct
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from drumline.distribute.tracing.replica_context import ReplicaContext
from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.per_replica import DistributedValue
from drumline.distribute.variables.tree import VariableTree
from drumline.distribute.variables.variable import Variable

#: NumPy arrays up to this many bytes are compared by content, in every call: a tenth of a microsecond each.
MAX_ARRAY_BYTES = 4096
#: Containers up to this many leaves, nested ones included, are compared by content. Each leaf costs every
#: call a tenth of a microsecond.
MAX_LEAVES = 64
#: Shown of a value in a message, at most.
MAX_SHOWN = 40

SEQUENCES = (list, tuple, deque)
CONTAINERS = (*SEQUENCES, Mapping, set, frozenset)

_SIMPLE = frozenset({bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), range})
#: Never change, or what does change is an input of the program.
_BY_IDENTITY = (
    jax.Array,
    jax.Device,
    Variable,
    VariableTree,
    DistributedValue,
    DeviceGroup,
    ReplicaContext,
    enum.Enum,
    types.ModuleType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    type,
)

#: Methods of objects that may change, though they say that they are equal.
_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)

_PATHS = sysconfig.get_paths()
_LIBRARIES = tuple(
    {os.path.join(os.path.realpath(_PATHS[name]), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {os.path.join(_PATHS[name], "") for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {os.path.join(str(Path(jax.__file__).parent.parent), ""), os.path.join(str(Path(__file__).parents[1]), "")}
)


def is_library_file(path: str | None) -> bool:
    """Tells files of Python, of installed packages and of this engine from the user's own."""
    return path is None or path.startswith(_LIBRARIES) or path.startswith("<frozen")


def is_library_module(name: str | None) -> bool:
    """Tells modules that come with Python or an installed package from the user's own."""
    module = sys.modules.get(name or "")
    if module is None:
        return False
    file = getattr(module, "__file__", None)
    return name != "__main__" and (is_library_file(file) if file else hasattr(module, "__path__") or _is_frozen(module))


def _is_frozen(module: types.ModuleType) -> bool:
    return module.__name__ in sys.builtin_module_names or module.__name__ in sys.stdlib_module_names


def is_simple(value: Any) -> bool:
    """A number, a string or the like, compared by value."""
    return type(value) in _SIMPLE or isinstance(value, np.generic) or (type(value) is slice and _is_simple_slice(value))


def simple_content(value: Any) -> Hashable:
    """Equal for values that make the same program: 1, 1.0 and True differ, so do 0.0 and -0.0; NaN equals itself."""
    if type(value) is float:
        return (float, struct.pack("<d", value))
    if type(value) is complex:
        return (complex, struct.pack("<dd", value.real, value.imag))
    if isinstance(value, np.generic):
        return (type(value), value.dtype, value.tobytes())
    if type(value) is slice:
        return (slice, *map(simple_content, (value.start, value.stop, value.step)))
    return (type(value), value)


def is_by_identity(value: Any) -> bool:
    """What is the same while it is the same object."""
    if isinstance(value, types.BuiltinFunctionType):  # also the methods of objects that can change
        return value.__self__ is None or isinstance(value.__self__, (types.ModuleType, type))
    return isinstance(value, _BY_IDENTITY)


def is_value_of_a_library(value: Any) -> bool:
    """A dtype, a path, a mesh ...: of a library class that tells when two are equal, and that they don't change."""
    kind = type(value)
    if isinstance(value, _BOUND) or not _is_compared_by_value(kind):
        return False
    if not is_library_module(kind.__module__):
        return False
    try:
        hash(value)
        return (value == value) is True  # arrays of other libraries answer with an array
    except Exception:  # noqa: BLE001  # whatever its comparison raises, it can't be compared
        return False


def typed_value(value: Any) -> Hashable:
    """The content of what :func:`is_value_of_a_library` is true of."""
    return (type(value), value)


def code_content(value: Any) -> Hashable:
    """A content that compares by itself: a code object."""
    return value  # type: ignore[no-any-return]  # hashable, the caller knows


def function_content(function: Any) -> Hashable:
    """What is compared of a function itself; what it captures is compared apart."""
    return (function.__code__, id(function.__globals__))


def _is_compared_by_value(kind: type) -> bool:
    own_hash, own_eq = getattr(kind, "__hash__", None), getattr(kind, "__eq__", None)
    return own_hash not in (None, object.__hash__) and own_eq != object.__eq__


def is_small_array(value: Any) -> bool:
    """A NumPy array that is compared by content."""
    return type(value) is np.ndarray and value.nbytes <= MAX_ARRAY_BYTES and not value.dtype.hasobject


def array_content(value: Any) -> Hashable:
    """Equal for arrays of equal bits."""
    return (value.dtype, value.shape, value.tobytes())


def is_record(value: Any) -> bool:
    """A dataclass instance or simple namespace: compared by content, not by identity."""
    return isinstance(value, types.SimpleNamespace) or dataclasses.is_dataclass(type(value))


def describe(value: Any) -> str:
    """A value in a message: itself where that is short."""
    if is_simple(value):
        shown = repr(value)
        return shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}..."
    if isinstance(value, (np.ndarray, jax.Array)):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, types.FunctionType):
        return f"{value.__qualname__} ({os.path.basename(value.__code__.co_filename)}:{value.__code__.co_firstlineno})"
    return f"an object of {type(value).__qualname__}"


def _is_simple_slice(value: slice) -> bool:
    return all(type(part) in _SIMPLE for part in (value.start, value.stop, value.step))


# attributes


def has_attributes(value: Any) -> bool:
    """An object or class of the user, or a record: told by its attributes."""
    if isinstance(value, type):
        return not is_library_module(value.__module__)
    return is_record(value) or not is_library_module(type(value).__module__)


def is_library_callable(value: Any) -> bool:
    """A function or class that is reached by the name of a library's module, and stays what it is."""
    if isinstance(value, types.FunctionType):
        return is_library_file(value.__code__.co_filename)
    if isinstance(value, (types.BuiltinFunctionType, types.MethodType)):
        return False  # np.random.normal: of an object that changes
    return callable(value) and is_library_module(getattr(value, "__module__", None))


def wrapped_parts(value: Any) -> tuple[str, ...]:
    """The attributes of a library's object that hold the functions it wraps: ``jax.jit``, ``jax.custom_vjp`` ..."""
    return tuple(name for name in _WRAPPED if callable(getattr(value, name, None)))


_WRAPPED = ("__wrapped__", "__func__", "func", "fget", "fun", "fwd", "bwd")


def dict_of(value: Any) -> dict[str, Any] | None:
    """The object's own attributes; None for one without ``__dict__``."""
    found = getattr(value, "__dict__", None)
    return found if isinstance(found, dict) else None


def member_of(kind: type, name: str) -> Any:
    """What the class or its bases hold under ``name``, descriptors as they are; None for nothing."""
    for base in kind.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


def comes_before_own(member: Any) -> bool:
    """A property, slot or other data descriptor: an attribute of the object doesn't hide it."""
    return hasattr(type(member), "__set__")


def member_reader(index: int, name: str, member: Any, *, is_class: bool) -> tuple[Callable[[list[Any]], None], bool]:
    """How to read a class member through the value at ``index``, and whether it is a function that gets self."""
    if is_class:
        return (lambda values: values.append(getattr(values[index], name))), False
    if isinstance(member, property) and member.fget is not None:
        return (lambda values: values.append(getattr(type(values[index]), name).fget)), True
    if isinstance(member, functools.cached_property):
        return (lambda values: values.append(getattr(type(values[index]), name).func)), True
    if isinstance(member, (types.MemberDescriptorType, types.GetSetDescriptorType)):
        return (lambda values: values.append(getattr(values[index], name))), False
    gets_self = hasattr(type(member), "__get__") and not isinstance(member, (staticmethod, classmethod))
    return (lambda values: values.append(getattr(type(values[index]), name))), gets_self


def filled_slots(value: Any) -> tuple[str, ...]:
    """The slots of a user's object that hold something."""
    names = [
        name
        for base in type(value).__mro__
        for name, member in base.__dict__.items()
        if isinstance(member, types.MemberDescriptorType)
    ]
    return tuple(name for name in names if hasattr(value, name))


def member_names(kind: type) -> list[str]:
    """The members of a class that a step may use: all but what Python and ``dataclass`` put there."""
    return [
        name
        for name, member in kind.__dict__.items()
        if not (name.startswith("__") and name.endswith("__")) or _is_written_function(member)
    ]


def _is_written_function(member: Any) -> bool:
    return isinstance(member, types.FunctionType) and member.__code__.co_filename != "<string>"
