"""What rows do to an array: the scatter operations of variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from drumline.distribute.values.indexed_slices import DROP, IndexedSlices

ScatterOp = Literal["add", "sub", "mul", "div", "min", "max", "update"]


def scatter(op: ScatterOp, current: Any, slices: IndexedSlices) -> jax.Array:
    """``current`` with the slices applied; of a repeated row every value is."""
    rows = slices.rows_of(jnp.shape(current))
    at = jnp.asarray(current).at[rows]
    values = jnp.asarray(slices.values, jnp.result_type(current))
    methods: dict[str, Callable[[Any], jax.Array]] = {
        "add": lambda v: at.add(v, **DROP),
        "sub": lambda v: at.add(-v, **DROP),
        "mul": lambda v: at.multiply(v, **DROP),
        "div": lambda v: lax.div(jnp.asarray(current), jnp.ones_like(current).at[rows].multiply(v, **DROP)),
        "min": lambda v: at.min(v, **DROP),
        "max": lambda v: at.max(v, **DROP),
        "update": lambda v: at.set(v, **DROP),
    }
    return methods[op](values)
