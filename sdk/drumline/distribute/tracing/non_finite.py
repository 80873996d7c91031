"""Makes a step watch its all-reduces for NaN and infinities, at every call, and look at each replica where there are.

Whether a look is needed is proven from less than the values (:mod:`drumline.distribute.tracing.finite_bound`), by each
replica of its own part: a sum of finite parts that are far from the largest number is finite. To read the reduced
values themselves on every device cost 12 to 23 % of a step of a small network on CPU devices; this is
not shown to cost at most 1 %: `docs/design/telemetry.md` has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from drumline.distribute.observe.non_finite import COUNTS, Watched
from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.finite_bound import FiniteBounds
from drumline.distribute.tracing.instrumentation import is_instrumented, is_mean
from drumline.distribute.tracing.reduction_names import all_reduce_name, variables_of
from drumline.distribute.tracing.step import TracedStep
from drumline.distribute.values.per_replica import REPLICA_AXIS


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
                op: Literal["sum", "mean"] = "mean" if is_mean(jaxpr, position, out, num_replicas) else "sum"
                watched.append(Watched(names.get(out) or all_reduce_name(eqn), op, tuple(out.aval.shape)))
    is_proven = jnp.stack(shares).max() <= jnp.float32(1)  # False for NaN
    counts = lax.cond(is_proven, _no_counts, _count, pairs)
    return [read(atom) for atom in jaxpr.outvars], ((~is_proven).astype(jnp.uint32), counts)


def _no_counts(pairs: list[tuple[Any, Any]]) -> jax.Array:
    return jnp.zeros(COUNTS * len(pairs), jnp.uint32)


def _count(pairs: list[tuple[Any, Any]]) -> jax.Array:
    """Of each all-reduce the NaNs and the infinities of this replica's part, and of both in the result."""
    return jnp.stack(
        [
            count
            for operand, result in pairs
            for count in (
                jnp.isnan(operand).sum(dtype=jnp.uint32),
                jnp.isinf(operand).sum(dtype=jnp.uint32),
                (~jnp.isfinite(result)).sum(dtype=jnp.uint32),
            )
        ]
    )
