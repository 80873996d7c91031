"""When two function objects are the same program: same code, same closed-over values.

A lambda written in a loop is a new object each time, yet needs no new trace while it closes over the same things.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Hashable
from typing import Any

_BY_VALUE = (bool, int, float, complex, str, bytes, type(None))


def function_key(fn: Callable[..., Any], anchors: list[Any]) -> Hashable:
    """A key that is equal for equal programs. ``anchors`` collects the objects the key names by identity.

    Whoever keeps the key must watch the anchors: when one dies, its identity may be given to another object.
    """
    if isinstance(fn, types.FunctionType):
        anchors.append(fn.__code__)
        cells = tuple(_cell_key(cell, anchors) for cell in fn.__closure__ or ())
        defaults = tuple(_value_key(value, anchors) for value in fn.__defaults__ or ())
        keyword_defaults = tuple((name, _value_key(v, anchors)) for name, v in (fn.__kwdefaults__ or {}).items())
        return (id(fn.__code__), id(fn.__globals__), cells, defaults, keyword_defaults)
    if isinstance(fn, types.MethodType):
        return (function_key(fn.__func__, anchors), _value_key(fn.__self__, anchors))
    if isinstance(fn, functools.partial):
        args = tuple(_value_key(value, anchors) for value in fn.args)
        kwargs = tuple((name, _value_key(value, anchors)) for name, value in fn.keywords.items())
        return (function_key(fn.func, anchors), args, kwargs)
    return _value_key(fn, anchors)


def _cell_key(cell: types.CellType, anchors: list[Any]) -> Hashable:
    try:
        content = cell.cell_contents
    except ValueError:
        return "empty"
    return _value_key(content, anchors)


def _value_key(value: Any, anchors: list[Any]) -> Hashable:
    if isinstance(value, _BY_VALUE):
        return (type(value), value)
    anchors.append(value)
    return id(value)
