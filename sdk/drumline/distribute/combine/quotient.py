"""Division by a count, correctly rounded.

XLA turns a division by one number into a multiplication by its reciprocal, whose last bit is wrong for a third of all
values when the count is no power of two. A mean over replicas must not depend on how it was compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

quotient_p = Primitive("replica_quotient")
#: Up to here the reciprocals of powers of two are normal numbers even of float16, so that no bit is lost.
_EXACT_RECIPROCALS = 2**13


def exact_quotient(total: Any, count: int) -> Any:
    """``total / count`` of a floating ``total``, inside traced functions too; linear in ``total``."""
    return quotient_p.bind(total, count=count)


def divide_exactly(total: Any, count: Any) -> Any:
    """What the primitive means. ``count`` may be traced: a scalar of any dtype."""
    if isinstance(count, int) and count <= _EXACT_RECIPROCALS and count & (count - 1) == 0:
        return lax.mul(total, np.asarray(1 / count, total.dtype))  # the same value, for less than a division costs
    counts = lax.broadcast(lax.convert_element_type(count, total.dtype), total.shape)
    return lax.div(total, lax.select(lax.ne(total, total), total, counts))  # NaN stays NaN; XLA sees no one divisor


def _transpose(cotangent: Any, total: Any, *, count: int) -> list[Any]:
    return [exact_quotient(ad.instantiate_zeros(cotangent), count)]


def _batch(values: tuple[Any], dims: tuple[Any], *, count: int) -> tuple[Any, Any]:
    return exact_quotient(values[0], count), dims[0]


quotient_p.def_impl(divide_exactly)
quotient_p.def_abstract_eval(lambda total, *, count: ShapedArray(total.shape, total.dtype))
ad.deflinear2(quotient_p, _transpose)
batching.primitive_batchers[quotient_p] = _batch
mlir.register_lowering(quotient_p, mlir.lower_fun(divide_exactly, multiple_results=False))
