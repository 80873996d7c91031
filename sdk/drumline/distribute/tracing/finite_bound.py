"""Whether a value of a step can hold NaN or infinities, told by less than reading it.

A sum of squares of a value bounds each of its elements. What is linear in smaller values is bounded by theirs: of a
product of matrices the norm is at most the product of the norms (Cauchy and Schwarz), so that a gradient of weights is
proven finite by the activations that it is made from, which are smaller than it by far. What is not proven is no NaN
yet: somebody has to look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drumline.distribute.tracing import jaxprs

#: Squares of float32 reach 3e38; below this a value and the sums of it over any number of replicas are finite.
_MOST_SQUARED = 1e30
#: Of float16, whose largest number is 65504: so that a sum over 64 replicas still is one.
_MOST_SQUARED_HALF = 1e6
_MOST_DEPTH = 8
"""Equations that are followed backwards: each costs some operations on scalars."""
_SAME_ELEMENTS = frozenset({"transpose", "reshape", "neg", "squeeze", "expand_dims", "rev", "copy", "copy_p"})

Cost = int
Bound = tuple[Cost, Callable[[], jax.Array]]
"""Elements to read, and what makes the bound of the sum of squares, as float32."""


class FiniteBounds:
    """Bounds of the values of one jaxpr under evaluation; ``read`` gives a value that was computed."""

    def __init__(self, jaxpr: Any, read: Callable[[Any], Any]) -> None:
        self._read = read
        self._producers: Mapping[Any, Any] = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
        self._known: dict[Any, jax.Array] = {}
        self._worst: list[jax.Array] = []

    def share(self, atom: Any) -> jax.Array:
        """How far a value's bound reaches of what is surely finite: finite it is up to 1; NaN where one is in it."""
        self._worst = []
        self._bound(atom, _MOST_DEPTH)[1]()
        worst: jax.Array = jnp.stack(self._worst).max()
        return worst

    def _bound(self, atom: Any, depth: int) -> Bound:
        direct: Bound = (int(np.prod(atom.aval.shape)), lambda: self._note(atom, self._squares(atom)))
        eqn = None if jaxprs.is_literal(atom) or not depth else self._producers.get(atom)
        derived = None if eqn is None else self._derived(eqn, depth - 1)
        if derived is None or derived[0] >= direct[0]:
            return direct
        cost, make = derived
        return cost, lambda: self._note(atom, make())

    def _note(self, atom: Any, squares: jax.Array) -> jax.Array:
        """Each value on the way counts: an infinity times 0 would be lost."""
        half = jnp.dtype(atom.aval.dtype) == jnp.float16
        self._worst.append(squares / np.float32(_MOST_SQUARED_HALF if half else _MOST_SQUARED))
        return squares

    def _squares(self, atom: Any) -> jax.Array:
        if jaxprs.is_literal(atom):
            constant = np.asarray(atom.val, np.float64)
            return jnp.asarray(float((constant * constant).sum()), jnp.float32)
        known = self._known.get(atom)
        if known is None:
            value = jnp.asarray(self._read(atom))
            flat = (value if value.dtype == jnp.float32 else value.astype(jnp.float32)).ravel()
            known = self._known[atom] = jnp.vdot(flat, flat)
        return known

    def _derived(self, eqn: Any, depth: int) -> Bound | None:
        """The bound of an equation's result by those of its operands; None where no rule says so."""
        name = eqn.primitive.name
        if len(eqn.outvars) != 1 or not all(map(_is_real, (*eqn.invars, *eqn.outvars))):
            return None
        if name in ("dot_general", "conv_general_dilated"):
            times = 1 if name == "dot_general" else math.prod(eqn.outvars[0].aval.shape)
            return _product(*(self._bound(atom, depth) for atom in eqn.invars), times=times)
        if name in _SAME_ELEMENTS or name == "convert_element_type":
            return self._bound(eqn.invars[0], depth)
        if name == "broadcast_in_dim" and len(eqn.invars) == 1:
            times = math.prod(eqn.outvars[0].aval.shape) // max(1, math.prod(eqn.invars[0].aval.shape))
            cost, make = self._bound(eqn.invars[0], depth)
            return cost, lambda: make() * np.float32(times)
        if name == "mul" and any(not atom.aval.shape for atom in eqn.invars):
            return _product(*(self._bound(atom, depth) for atom in eqn.invars), times=1)
        if name in ("add", "sub", "add_any"):
            first, second = (self._bound(atom, depth) for atom in eqn.invars)
            return first[0] + second[0], lambda: np.float32(2) * (first[1]() + second[1]())
        return None


def _product(first: Bound, second: Bound, *, times: int) -> Bound:
    return first[0] + second[0], lambda: first[1]() * second[1]() * np.float32(times)


def _is_real(atom: Any) -> bool:
    dtype = getattr(atom.aval, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jnp.floating)
