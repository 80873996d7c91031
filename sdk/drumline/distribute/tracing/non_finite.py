"""Makes a step watch its all-reduces for NaN and infinities, at every call, and look at each replica where there are.

Whether a look is needed is proven from less than the values (:mod:`drumline.distribute.tracing.finite_bound`), by each
replica of its own part: a sum of finite parts that are far from the largest number is finite. What it costs:
`docs/design/reductions.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from drumline.distribute.observe.non_finite import COUNTS, Watched
from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.finite_bound import FiniteBounds
from drumline.distribute.tracing.instrumentation import is_instrumented, mean_by
from drumline.distribute.tracing.reduction_names import all_reduce_name, variables_of
from drumline.distribute.tracing.step import TracedStep
from drumline.distribute.values.per_replica import REPLICA_AXIS

Test = Callable[[jax.Array], jax.Array]
"""Of which elements something holds."""
_PARTS = 64
_MOST_AT_ONCE = 16_384
"""Elements: 64 KiB of them."""


def watch(traced: TracedStep, num_replicas: int, *, counts_on: bool) -> tuple[TracedStep, tuple[Watched, ...]]:
    """The step with one further output for each replica, uint32[1 + 3 * all-reduces], as ``WatchedStep`` reads it.

    ``counts_on``: it has one more input, what it put out the call before, and counts calls in which a look was due;
    else the first number says so of this call alone.
    """
    watched: list[Watched] = []

    def body(*inputs: Any) -> list[Any]:
        before = inputs[len(traced.jaxpr.in_avals)][0] if counts_on else jnp.uint32(0)
        results, looks = _evaluate(traced, num_replicas, inputs[: len(traced.jaxpr.in_avals)], watched)
        numbers = jnp.concatenate([(before + looks[0])[None], looks[1]])
        return [*results[: traced.num_outputs], numbers, *results[traced.num_outputs :]]

    examples = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in traced.jaxpr.in_avals]
    count = sum(len(eqn.invars) for eqn in traced.jaxpr.jaxpr.eqns if _is_watched(eqn))
    before = [jax.ShapeDtypeStruct((1 + COUNTS * count,), jnp.uint32)] if counts_on else []
    closed = jax.make_jaxpr(body, axis_env=[(REPLICA_AXIS, num_replicas)])(*examples, *before)
    jaxpr, constants = jaxprs.hoist_constants(closed)
    variant = replace(
        traced, jaxpr=jaxpr, constants=[*constants, *traced.constants], num_outputs=traced.num_outputs + 1
    )
    return variant, tuple(watched)


def has_watched(traced: TracedStep) -> bool:
    """Whether a step has an all-reduce that can be watched: at its top level, of numbers that can be NaN."""
    return any(map(_is_watched, traced.jaxpr.jaxpr.eqns))


def _is_watched(eqn: Any) -> bool:
    return is_instrumented(eqn) and all(jnp.issubdtype(var.aval.dtype, jnp.floating) for var in eqn.outvars)


def _evaluate(
    traced: TracedStep, num_replicas: int, inputs: Sequence[Any], watched: list[Watched]
) -> tuple[list[Any], tuple[jax.Array, jax.Array]]:
    """The step's results, whether a look was due, and what it found."""
    jaxpr = traced.jaxpr.jaxpr
    env: dict[Any, Any] = dict(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if jaxprs.is_literal(atom) else env[atom]

    bounds = FiniteBounds(jaxpr, read)
    shares: list[jax.Array] = []
    pairs: list[tuple[Any, Any]] = []
    watched.clear()
    names = variables_of(traced, _is_watched)
    for position, eqn in enumerate(jaxpr.eqns):
        operands = [read(atom) for atom in eqn.invars]
        results = jaxprs.bind(eqn, operands, jaxpr)
        env.update(zip(eqn.outvars, results, strict=True))
        for atom, operand, result, out in zip(eqn.invars, operands, results, eqn.outvars, strict=False):
            if _is_watched(eqn):
                shares.append(bounds.share(atom))
                pairs.append((operand, result))
                op: Literal["sum", "mean"] = "mean" if mean_by(jaxpr, position, out, num_replicas) else "sum"
                watched.append(Watched(names.get(out) or all_reduce_name(eqn), op, tuple(out.aval.shape)))
    is_proven = jnp.stack(shares).max() <= jnp.float32(1)  # False for NaN
    # Two: one for both would keep what went in until what comes out is there, and the step's memory would grow by it.
    of_parts = _count_unless(is_proven, [operand for operand, _ in pairs], (jnp.isnan, jnp.isinf))
    of_results = _count_unless(is_proven, [result for _, result in pairs], (_is_odd,))
    counts = jnp.concatenate([of_parts, of_results], axis=1).ravel()
    return [read(atom) for atom in jaxpr.outvars], ((~is_proven).astype(jnp.uint32), counts)


def _is_odd(array: jax.Array) -> jax.Array:
    return ~jnp.isfinite(array)


def _count_unless(is_proven: jax.Array, arrays: list[Any], tests: Sequence[Test]) -> jax.Array:
    """uint32[arrays, tests]: for how many elements of each array each test holds; zeros where that is proven."""

    def zeros(arrays: list[Any]) -> jax.Array:
        return jnp.zeros((len(arrays), len(tests)), jnp.uint32)

    def counts(arrays: list[Any]) -> jax.Array:
        return jnp.stack([_count(array, tests) for array in arrays])

    found: jax.Array = lax.cond(is_proven, zeros, counts, arrays)
    return found


def _count(array: jax.Array, tests: Sequence[Test]) -> jax.Array:
    """uint32[tests]. A large array is cut along its longest axis and counted part by part: XLA for CPUs writes what it
    adds up to memory before, and room for that would be taken by each step, in which there is nothing to count.
    """
    if array.size <= _MOST_AT_ONCE:
        return jnp.stack([test(array).sum(dtype=jnp.uint32) for test in tests])
    axis = int(np.argmax(array.shape))
    length = array.shape[axis]
    width = -(-length // _PARTS)

    def add(part: jax.Array, counts: jax.Array) -> jax.Array:
        begin = part * np.int32(width)
        start = jnp.minimum(begin, np.int32(length - width))  # the last overlaps the one before
        values = lax.dynamic_slice_in_dim(array, start, width, axis)
        is_new = lax.broadcasted_iota(np.int32, values.shape, axis) >= begin - start
        return counts + jnp.stack([(test(values) & is_new).sum(dtype=jnp.uint32) for test in tests])

    found: jax.Array = lax.fori_loop(np.int32(0), np.int32(-(-length // width)), add, jnp.zeros(len(tests), jnp.uint32))
    return found
