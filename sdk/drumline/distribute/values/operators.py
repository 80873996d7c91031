"""Python's operators, applied to what an object holds."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np


class ArrayOperators:
    """Arithmetic and order of ``self.value``; subclasses say what that is."""

    @property
    def value(self) -> jax.Array:
        """The array the operators work on."""
        raise NotImplementedError

    def __add__(self, other: Any) -> jax.Array:
        return _apply(operator.add, self, other)

    def __radd__(self, other: Any) -> jax.Array:
        return _apply(operator.add, other, self)

    def __sub__(self, other: Any) -> jax.Array:
        return _apply(operator.sub, self, other)

    def __rsub__(self, other: Any) -> jax.Array:
        return _apply(operator.sub, other, self)

    def __mul__(self, other: Any) -> jax.Array:
        return _apply(operator.mul, self, other)

    def __rmul__(self, other: Any) -> jax.Array:
        return _apply(operator.mul, other, self)

    def __truediv__(self, other: Any) -> jax.Array:
        return _apply(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> jax.Array:
        return _apply(operator.truediv, other, self)

    def __floordiv__(self, other: Any) -> jax.Array:
        return _apply(operator.floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> jax.Array:
        return _apply(operator.floordiv, other, self)

    def __mod__(self, other: Any) -> jax.Array:
        return _apply(operator.mod, self, other)

    def __rmod__(self, other: Any) -> jax.Array:
        return _apply(operator.mod, other, self)

    def __pow__(self, other: Any) -> jax.Array:
        return _apply(operator.pow, self, other)

    def __rpow__(self, other: Any) -> jax.Array:
        return _apply(operator.pow, other, self)

    def __matmul__(self, other: Any) -> jax.Array:
        return _apply(operator.matmul, self, other)

    def __rmatmul__(self, other: Any) -> jax.Array:
        return _apply(operator.matmul, other, self)

    def __lt__(self, other: Any) -> jax.Array:
        return _apply(operator.lt, self, other)

    def __le__(self, other: Any) -> jax.Array:
        return _apply(operator.le, self, other)

    def __gt__(self, other: Any) -> jax.Array:
        return _apply(operator.gt, self, other)

    def __ge__(self, other: Any) -> jax.Array:
        return _apply(operator.ge, self, other)

    def __eq__(self, other: object) -> Any:
        """Element by element, as arrays; with None and other things that are no array, identity."""
        return _compare(operator.eq, self, other)

    def __ne__(self, other: object) -> Any:
        return _compare(operator.ne, self, other)

    __hash__ = object.__hash__  # by identity: a key stays the same while the value changes

    def __and__(self, other: Any) -> jax.Array:
        return _apply(operator.and_, self, other)

    def __rand__(self, other: Any) -> jax.Array:
        return _apply(operator.and_, other, self)

    def __or__(self, other: Any) -> jax.Array:
        return _apply(operator.or_, self, other)

    def __ror__(self, other: Any) -> jax.Array:
        return _apply(operator.or_, other, self)

    def __xor__(self, other: Any) -> jax.Array:
        return _apply(operator.xor, self, other)

    def __rxor__(self, other: Any) -> jax.Array:
        return _apply(operator.xor, other, self)

    def __invert__(self) -> jax.Array:
        return ~self.value

    def __neg__(self) -> jax.Array:
        return -self.value

    def __abs__(self) -> jax.Array:
        return abs(self.value)

    def __getitem__(self, index: Any) -> jax.Array:
        return self.value[index]

    def __iter__(self) -> Iterator[jax.Array]:
        return iter(self.value)  # indexing has no end: JAX clamps what is out of range

    def __bool__(self) -> bool:
        return bool(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

    def __round__(self, digits: int = 0) -> jax.Array:
        return round(self.value, digits)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)


def _compare(method: Any, left: ArrayOperators, right: object) -> Any:
    if not isinstance(right, (ArrayOperators, jax.Array, np.ndarray, np.generic, int, float, complex, list, tuple)):
        return NotImplemented
    if isinstance(right, (list, tuple)):
        right = np.asarray(right, object if _is_ragged(right) else None)
    if isinstance(right, np.ndarray) and right.dtype.kind in "OSUTmM":
        return NotImplemented  # no JAX array can be equal to it
    return _apply(method, left, right)


def _is_ragged(rows: Any) -> bool:
    try:
        np.shape(rows)
    except ValueError:
        return True
    return False


def _apply(method: Any, left: Any, right: Any) -> jax.Array:
    left = left.value if isinstance(left, ArrayOperators) else left
    right = right.value if isinstance(right, ArrayOperators) else right
    result: jax.Array = method(left, right)
    return result
