"""Numbers that a program wants only to show them, so that it need not stop where there are none."""

from __future__ import annotations

import ast
import builtins
import linecache
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

_Place = tuple[int | None, int | None, int | None, int | None]
#: What hands on a number, or a text made of it, without a look at it.
_HANDS_ON = (ast.JoinedStr, ast.FormattedValue, ast.keyword, ast.Tuple, ast.List, ast.Dict, ast.BinOp, ast.UnaryOp)


class Unread:
    """Who takes a program's numbers and never looks: print, the functions ``shown_by``, and the caller of ``main``."""

    def __init__(self, shown_by: Sequence[Callable[..., Any]] = (), main: Callable[..., Any] | None = None) -> None:
        self._shown_by = shown_by
        self._main: CodeType | None = getattr(main, "__code__", None)

    def takes(self, frame: FrameType) -> bool:
        """Whether the number that ``frame`` asks for now goes to them alone."""
        at = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        path = _path(frame.f_code.co_filename, at)
        if len(path) < 2:
            return False
        statement, *between, _ = path
        if isinstance(statement, ast.Return):
            return frame.f_code is self._main and all(map(_hands_on, between))
        if not (isinstance(statement, ast.Expr) and between and isinstance(between[0], ast.Call)):
            return False
        return self._is_unread(between[0].func, frame) and all(map(_hands_on, between[1:]))

    def _is_unread(self, func: ast.expr, frame: FrameType) -> bool:
        if isinstance(func, ast.Name):
            return self._found(func.id, frame) in (builtins.print, *self._shown_by)
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
            method = getattr(self._found(func.value.id, frame), func.attr, None)
            return getattr(method, "__func__", None) in self._shown_by
        return False

    @staticmethod
    def _found(name: str, frame: FrameType) -> Any:
        for names in (frame.f_locals, frame.f_globals, vars(builtins)):
            if name in names:
                return names[name]
        return None


def _hands_on(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):  # "{:.3f}".format(loss), round(loss, 3)
        func = node.func
        if isinstance(func, ast.Name):
            return func.id in ("float", "str") or (func.id == "round" and len(node.args) == 2)
        return isinstance(func, ast.Attribute) and func.attr == "format" and isinstance(func.value, ast.Constant)
    return isinstance(node, _HANDS_ON)


@lru_cache(maxsize=64)
def _path(file: str, at: _Place) -> tuple[ast.AST, ...]:
    """The nodes from a statement down to the one that lies ``at``: first and last line, first and last column."""
    try:
        whole = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return max(_paths(whole, (), at), key=len, default=())


def _paths(node: ast.AST, above: tuple[ast.AST, ...], at: _Place) -> Iterator[tuple[ast.AST, ...]]:
    """All that lead there: before Python 3.12 each part of an f-string says that it is as long as the whole."""
    path = (node,) if isinstance(node, ast.stmt) else (*above, node)
    if _span(node) == at:
        yield path
    for child in ast.iter_child_nodes(node):
        if _holds(child, at):
            yield from _paths(child, path, at)


def _span(node: ast.AST) -> tuple[Any, ...]:
    return tuple(getattr(node, name, None) for name in ("lineno", "end_lineno", "col_offset", "end_col_offset"))


def _holds(node: ast.AST, at: _Place) -> bool:
    first, last, start, end = at
    of_first, of_last, of_start, of_end = _span(node)
    if None in (first, of_first):
        return False
    return bool((of_first, of_start) <= (first, start) and (last, end) <= (of_last, of_end))
