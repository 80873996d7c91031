"""The path of a leaf, such as ``layers.0.weight``, noted in the program where the leaf is reduced."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import Any

import jax

_MARK = "leaf:"
_NOTED = re.compile(rf"{_MARK}([^/()]+)")


def leaf_scope(path: tuple[Any, ...]) -> AbstractContextManager[None]:
    """Equations traced inside bear the path."""
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    return jax.named_scope(_MARK + re.sub("[/()]", ".", name))


def leaf_of(eqn: Any) -> str | None:
    """The path noted in an equation, the innermost one; None without."""
    found = _NOTED.findall(str(eqn.source_info.name_stack))
    return str(found[-1]) if found else None
