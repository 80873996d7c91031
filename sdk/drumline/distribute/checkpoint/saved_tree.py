"""The shape of a saved pytree, as JSON: enough to build it again without the classes it was made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

import jax
import jax.numpy as jnp

#: Python numbers come back as what they were.
_NUMBERS: dict[str, type] = {"bool": bool, "int": int, "float": float, "complex": complex}
_KEY = "key:"


class SavedTree(TypedDict):
    """``tree``: nested nodes; ``kinds``: what each leaf was, in order; ``texts``: leaves that are strings, by index;
    ``empties``: type and shape of arrays without elements, which orbax does not write.
    """

    tree: Any
    kinds: list[str]
    texts: dict[str, str]
    empties: dict[str, tuple[str, list[int]]]


def describe(state: Any, leaves: Sequence[Any]) -> SavedTree:
    """The shape of ``state``, with ``leaves`` as they are saved: strings stand in the shape itself.

    Nodes other than dict, list, tuple and None are noted as lists of their children.
    """
    texts = {str(i): leaf for i, leaf in enumerate(leaves) if isinstance(leaf, str)}
    return SavedTree(tree=_node(state), kinds=[_kind(leaf) for leaf in leaves], texts=texts, empties={})


def rebuild(saved: SavedTree, values: Sequence[Any]) -> Any:
    """The tree with ``values`` as its leaves."""
    leaves = (_leaf(kind, value) for kind, value in zip(saved["kinds"], values, strict=True))
    return _build_node(saved["tree"], leaves)


def leaf_names(saved: SavedTree) -> list[str]:
    """How the program finds each leaf, such as ``['optimizer'][0]``."""
    return list(_names(saved["tree"], ""))


def _names(node: Any, name: str) -> Iterator[str]:
    if node == "leaf":
        yield name
        return
    ((kind, children),) = node.items()
    for number, child in enumerate(children):
        key, below = child if kind == "dict" else (number, child)
        yield from _names(below, f"{name}[{key!r}]")


def _node(node: Any) -> Any:
    if node is None:
        return {"none": []}
    parts = jax.tree_util.default_registry.flatten_one_level(node)
    if parts is None:
        return "leaf"
    children = [_node(child) for child in parts[0]]
    if type(node) is dict:
        keys = [key if isinstance(key, (str, int)) else str(key) for key in sorted(node)]
        return {"dict": list(zip(keys, children, strict=True))}
    return {"tuple" if type(node) is tuple else "list": children}


def _build_node(node: Any, leaves: Iterator[Any]) -> Any:
    if node == "leaf":
        return next(leaves)
    ((kind, children),) = node.items()
    if kind == "none":
        return None
    if kind == "dict":
        return {key: _build_node(child, leaves) for key, child in children}
    built = [_build_node(child, leaves) for child in children]
    return tuple(built) if kind == "tuple" else built


def _kind(leaf: Any) -> str:
    if isinstance(leaf, str):
        return "text"
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return f"{_KEY}{jax.random.key_impl(leaf)}"
    name = type(leaf).__name__
    return name if name in _NUMBERS else "array"


def _leaf(kind: str, value: Any) -> Any:
    if kind.startswith(_KEY):
        return jax.random.wrap_key_data(value, impl=kind.removeprefix(_KEY))
    return _NUMBERS[kind](value.item()) if kind in _NUMBERS else value
