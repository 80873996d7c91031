"""Gradients of a batch that is too large for memory, added up over parts of it."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from drumline.distribute.contexts import context
from drumline.distribute.errors import InvalidTypeError, InvalidValueError


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of the part that is being worked on, and of this replica's whole batch."""

    rows: int
    batch_rows: int


class _Current(threading.local):
    part: Part | None = None


_current = _Current()


def current_part() -> Part | None:
    """The part of a batch that ``accumulate_gradients`` is at; None outside of it."""
    return _current.part


def accumulate_gradients(
    fn: Callable[..., Any], num_steps: int, *, argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """``jax.value_and_grad(fn)`` over ``num_steps`` parts of the batch, one after the other, so that it fits memory.

    The function it returns takes what ``fn`` takes; arguments not in ``argnums`` are cut along axis 0 into
    ``num_steps`` parts that differ by one row at most (of fewer rows, as many parts as there are rows). Loss and
    gradients are means over the parts, each weighed by its rows: those of the whole batch, for a loss that is a mean
    of rows or a ``global_mean``. Aux outputs have an entry per part: stacked, or a tuple where their shapes differ.
    Raises InvalidValueError for arguments without rows or with different numbers of them.
    """
    steps = _check_steps(num_steps)
    differentiated = (argnums,) if isinstance(argnums, int) else argnums
    value_and_grad = jax.value_and_grad(fn, argnums=argnums, has_aux=has_aux)

    def accumulate(*args: Any) -> Any:
        fixed = {i % len(args) for i in differentiated}
        batch = tuple(jax.tree.map(jnp.asarray, arg) for i, arg in enumerate(args) if i not in fixed)

        def one(part: Any) -> Any:
            parts = iter(part)
            value, gradients = value_and_grad(*(arg if i in fixed else next(parts) for i, arg in enumerate(args)))
            loss, aux = value if has_aux else (value, None)
            return (loss, gradients), aux

        (loss, gradients), aux = _mean_over_parts(one, batch, steps)
        return ((loss, aux), gradients) if has_aux else (loss, gradients)

    return accumulate


def _check_steps(num_steps: int) -> int:
    try:
        steps = operator.index(num_steps)
    except TypeError:
        raise InvalidTypeError(f"num_steps={num_steps!r} is no whole number") from None
    if steps < 1:
        raise InvalidValueError(f"num_steps={num_steps} must be at least 1")
    return steps


def _mean_over_parts(one: Callable[[Any], Any], batch: Any, steps: int) -> Any:
    """The weighted mean of ``one``'s first result over the parts, and its second results.

    The first parts have a row more than the others. Where each replica has its own program all go through both kinds,
    also through kinds they have no part of: what ``one`` exchanges must be the same on replicas with other rows.
    """
    rows = _common_rows(batch, steps)
    small, large_parts = divmod(rows, steps)
    trace = context.current_trace()
    is_alone = trace is None or trace.exchange is None
    groups = [(large_parts, small + 1, 0), (steps - large_parts, small, large_parts * (small + 1))]
    sums: list[tuple[float, Any]] = []
    auxes = []
    for parts, size, start in groups:
        counts = parts > 0 and (size > 0 or rows == 0)
        if is_alone and not counts:
            continue
        stacked = jax.tree.map(partial(_cut, start=start, parts=parts, size=size), batch)
        with _work_on(Part(size, rows)):
            total, aux = _sum_parts(one, stacked, parts)
        if counts:
            sums.append((size / rows if rows else 1 / steps, total))
            auxes.append(aux)
    if len(sums) == 1:  # parts of one size: their plain mean
        count = min(rows, steps) or steps
        return jax.tree.map(lambda total: total / count, sums[0][1]), auxes[0]
    (large_weight, large), (small_weight, little) = sums
    mean = jax.tree.map(lambda a, b: a * large_weight + b * small_weight, large, little)
    return mean, jax.tree.map(_join_aux, *auxes)


def _common_rows(batch: Any, steps: int) -> int:
    shapes = [leaf.shape for leaf in jax.tree.leaves(batch)]
    if not shapes:
        return steps
    if any(not shape for shape in shapes) or len({shape[0] for shape in shapes}) > 1:
        shown = ", ".join(str(list(shape)) for shape in shapes)
        raise InvalidValueError(
            f"arguments of shape {shown} can't be cut along axis 0 into {steps} parts: each needs as many rows; name "
            "those that are no batch in argnums, or close over them"
        )
    return int(shapes[0][0])


def _cut(array: jax.Array, start: int, parts: int, size: int) -> jax.Array:
    return array[start : start + parts * size].reshape(parts, size, *array.shape[1:])


def _sum_parts(one: Callable[[Any], Any], stacked: Any, parts: int) -> Any:
    def body(total: Any, part: Any) -> Any:
        result, aux = one(part)
        return jax.tree.map(jnp.add, total, result), aux

    shapes, _ = jax.eval_shape(
        one, jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), stacked)
    )
    zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    return lax.scan(body, zeros, stacked, length=parts)


def _join_aux(large: Any, small: Any) -> Any:
    """The aux outputs of all parts."""
    if np.shape(large)[1:] == np.shape(small)[1:]:
        return jnp.concatenate([large, small])
    return (*large, *small)


@contextmanager
def _work_on(part: Part) -> Iterator[None]:
    outer, _current.part = _current.part, part
    try:
        yield
    finally:
        _current.part = outer
