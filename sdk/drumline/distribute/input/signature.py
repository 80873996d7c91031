"""What a generator's elements are declared to be, and the check of each against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path

from drumline.distribute.errors import InvalidTypeError, InvalidValueError
from drumline.distribute.input.spec import ArraySpec

_TEXT_KINDS = "OSU"


@dataclass(frozen=True, eq=False)
class Signature:
    """Type of every leaf, and its shape; a shape of None is any."""

    tree: Any  # jax names the type of a tree without saying what it has
    names: tuple[str, ...]
    dtypes: tuple[np.dtype[Any], ...]
    shapes: tuple[tuple[int | None, ...] | None, ...]

    @property
    def element_spec(self) -> Any:
        """The nest of specs, or None where a shape is not declared."""
        if None in self.shapes:
            return None
        pairs = zip(self.shapes, self.dtypes, strict=True)
        return jax.tree.unflatten(self.tree, [ArraySpec(shape or (), dtype) for shape, dtype in pairs])

    def convert(self, number: int, element: Any) -> Any:
        """The element with arrays of the declared types; an InvalidTypeError names element, leaf and type."""
        try:
            leaves = self.tree.flatten_up_to(element)
        except ValueError:
            raise InvalidTypeError(
                f"element {number} of the generator is {element!r:.80}, which has not the declared structure "
                f"{jax.tree.unflatten(self.tree, [dtype.name for dtype in self.dtypes])}"
            ) from None
        declared = zip(self.names, leaves, self.dtypes, self.shapes, strict=True)
        return jax.tree.unflatten(self.tree, [_convert(number, *leaf) for leaf in declared])


def declared_signature(given: Sequence[Any], shapes: Any = None) -> Signature | None:
    """The signature that a nest of specs or of types declares; None where nothing was ``given``."""
    if not given:
        if shapes is not None:
            raise InvalidValueError("output_shapes says nothing without output_types; give both, or output_signature")
        return None
    (declared,) = given
    return signature_of_specs(declared) if is_nest_of_specs(declared) else signature_of_types(declared, shapes)


def is_nest_of_specs(declared: Any) -> bool:
    """Whether there are leaves, and none is a mere type."""
    leaves = jax.tree.leaves(declared)
    return bool(leaves) and all(
        hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, type) for leaf in leaves
    )


def signature_of_specs(specs: Any) -> Signature:
    """From a nest of ArraySpec (or of anything with shape and dtype)."""
    paths, tree = tree_flatten_with_path(specs)
    names = tuple(keystr(path) for path, _ in paths)
    return Signature(
        tree, names, tuple(_dtype(leaf.dtype) for _, leaf in paths), tuple(tuple(leaf.shape) for _, leaf in paths)
    )


def signature_of_types(types: Any, shapes: Any = None) -> Signature:
    """From a nest of types, and one of shapes in the same structure."""
    paths, tree = cast("tuple[Any, Any]", tree_flatten_with_path(types))
    declared: list[Any] = [None] * len(paths)
    if shapes is not None:
        try:
            declared = tree.flatten_up_to(shapes)
        except ValueError:
            raise InvalidValueError(
                f"output_shapes {shapes!r:.80} has another structure than output_types {types!r:.80}"
            ) from None
    names = tuple(keystr(path) for path, _ in paths)
    dtypes = tuple(_dtype(leaf) for _, leaf in paths)
    return Signature(tree, names, dtypes, tuple(None if shape is None else tuple(shape) for shape in declared))


def _dtype(declared: Any) -> np.dtype[Any]:
    if declared in (str, bytes) or (isinstance(declared, str) and declared == "string"):
        return np.dtype(object)
    try:
        dtype = np.dtype(declared)
    except TypeError:
        raise InvalidTypeError(
            f"{declared!r:.60} is no type of an array; use a NumPy dtype, or str for texts"
        ) from None
    return np.dtype(object) if dtype.kind in "SU" else dtype


def _convert(
    number: int, name: str, value: Any, dtype: np.dtype[Any], shape: tuple[int | None, ...] | None
) -> np.ndarray[Any, Any]:
    where = f"element {number} of the generator{f', leaf {name},' if name else ''}"
    try:
        given = np.array(value, dtype=object) if isinstance(value, bytes) else np.asarray(value)
    except ValueError:
        raise InvalidTypeError(f"{where} is {value!r:.60}, whose parts differ in shape; {dtype} was declared") from None
    if not _is_exact(given, dtype):
        raise InvalidTypeError(
            f"{where} is {value!r:.60} ({given.dtype}), which is no {_name(dtype)}; {_name(dtype)} was declared"
        )
    if shape is not None and not _has_shape(given.shape, shape):
        raise InvalidTypeError(f"{where} has shape {list(given.shape)}, but {list(shape)} was declared")
    return given.astype(dtype)


def _is_exact(given: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> bool:
    """Whether the conversion keeps the values, up to the rounding of floating-point numbers."""
    if dtype.kind in _TEXT_KINDS or given.dtype.kind in _TEXT_KINDS:
        return dtype.kind in _TEXT_KINDS and given.dtype.kind in _TEXT_KINDS
    if given.dtype.kind in "iu" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return not given.size or (int(given.min()) >= limits.min and int(given.max()) <= limits.max)
    return np.can_cast(given.dtype, dtype, "same_kind") or not given.size


def _has_shape(given: tuple[int, ...], declared: tuple[int | None, ...]) -> bool:
    return len(given) == len(declared) and all(size in (None, own) for own, size in zip(given, declared, strict=True))


def _name(dtype: np.dtype[Any]) -> str:
    return "text" if dtype.kind in _TEXT_KINDS else dtype.name
