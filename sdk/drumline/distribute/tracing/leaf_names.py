"""The path of a leaf, such as ``layers.0.weight``: of an argument, or noted in the program where it is reduced."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax

_MARK = "leaf:"
_NOTED = re.compile(rf"{_MARK}([^/()]+)")


def leaf_scope(path: tuple[Any, ...]) -> AbstractContextManager[None]:
    """Equations traced inside bear the path."""
    return jax.named_scope(_MARK + re.sub("[/()]", ".", _join(path)))


def leaf_of(eqn: Any) -> str | None:
    """The path noted in an equation, the innermost one; None without."""
    found = _NOTED.findall(str(eqn.source_info.name_stack))
    return str(found[-1]) if found else None


def parameter_names(fn: Callable[..., Any]) -> tuple[str, ...]:
    """Of the parameters that take arguments by place; those that a ``*args`` takes have no name."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in kinds)


def argument_paths(tree: Any, parameters: Sequence[str]) -> list[str]:
    """The paths of all leaves, which begin with the argument's name, or ``args.2`` where it has none.

    ``tree``: of (args, kwargs).
    """
    args, kwargs = jax.tree.unflatten(tree, range(tree.num_leaves))
    by_place = [
        (parameters[place] if place < len(parameters) else f"args.{place}", value) for place, value in enumerate(args)
    ]
    return [
        (f"{name}.{_join(path)}" if path else name)
        for name, value in [*by_place, *kwargs.items()]
        for path, _ in jax.tree_util.tree_flatten_with_path(value)[0]
    ]


def _join(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
