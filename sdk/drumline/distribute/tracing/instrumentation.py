"""Looks at the all-reduces of a traced step: what each replica put in and what came out.

A second variant of the step is evaluated from the same jaxpr with those values as extra outputs, and used on sampled
steps only. Inside nested jit all-reduces are seen, inside scan stacked over the iterations; inside cond and while they
are not recorded, since they may not happen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from drumline.distribute.combine.primitives import exact_quotient, quotient_p
from drumline.distribute.observe import MAX_FREQUENT_ELEMENTS, MAX_LISTED_ELEMENTS, SummaryOnDevice
from drumline.distribute.observe.summaries import bucket_width, is_brought_whole
from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.reduction_names import all_reduce_name, variables_of
from drumline.distribute.tracing.step import TracedStep
from drumline.distribute.values.per_replica import REPLICA_AXIS

#: Primitives that add up over replicas.
SUMS = frozenset({"psum", "psum_invariant", "replica_aggregate"})
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr"}


Keeps = Literal["each", "one", "others"]


@dataclass(frozen=True, slots=True)
class InstrumentedCollective:
    """One recorded all-reduce. ``keeps``: of which steps, where one call does several.

    ``one``: every element of one step, which the executor chooses; ``others``: summaries of the others.
    """

    name: str
    op: Literal["sum", "mean"]
    shape: tuple[int, ...]
    dtype: str
    is_summary: bool = False
    keeps: Keeps = "each"

    def value(self, recorded: Any) -> Any:
        """What an observer is given for a recorded operand or result."""
        return SummaryOnDevice(self.shape, self.dtype, recorded) if self.is_summary else recorded


_Seen = tuple[InstrumentedCollective, Any, Any]


def instrument(
    traced: TracedStep, num_replicas: int, *, with_large: bool, does_several: bool = False
) -> tuple[TracedStep, list[InstrumentedCollective]]:
    """The step with operand and result of each all-reduce as further outputs: all operands first, then all results.

    Arrays of more than 32 elements are taken only ``with_large``. Of those with more than 1024 some are brought to the
    host whole, and the others the step itself summarizes; both, where the program ``does_several`` in a call.
    """
    instrumented: list[InstrumentedCollective] = []
    names = variables_of(traced, is_instrumented)

    def body(*inputs: Any) -> list[Any]:
        seen: list[_Seen] = []
        results = _Interpreter(num_replicas, names, with_large=with_large, does_several=does_several).evaluate(
            traced.jaxpr.jaxpr, (), inputs, seen
        )
        instrumented[:] = [one for one, _, _ in seen]
        operands, reduced = [operand for _, operand, _ in seen], [result for _, _, result in seen]
        # Variables stay last: an executor tells them from outputs by position.
        return [*results[: traced.num_outputs], *operands, *reduced, *results[traced.num_outputs :]]

    examples = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in traced.jaxpr.in_avals]
    closed = jax.make_jaxpr(body, axis_env=[(REPLICA_AXIS, num_replicas)])(*examples)
    jaxpr, constants = jaxprs.hoist_constants(closed)
    reduced = range(traced.num_outputs + len(instrumented), traced.num_outputs + 2 * len(instrumented))
    variant = replace(
        traced,
        jaxpr=jaxpr,
        constants=[*constants, *traced.constants],
        num_outputs=traced.num_outputs + 2 * len(instrumented),
        mirrored_outputs=traced.mirrored_outputs | set(reduced),
    )
    return variant, instrumented


class _Interpreter:
    """Evaluates a jaxpr on tracers and notes its all-reduces."""

    def __init__(
        self, num_replicas: int, names: Mapping[Any, str], *, with_large: bool, does_several: bool = False
    ) -> None:
        self._num_replicas = num_replicas
        self._names = names
        self._with_large = with_large
        self._does_several = does_several

    def evaluate(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any], seen: list[_Seen]) -> list[Any]:
        """Outputs of the jaxpr; what its all-reduces took in and gave out is added to ``seen``."""
        env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if jaxprs.is_literal(atom) else env[atom]

        for position, eqn in enumerate(jaxpr.eqns):
            operands = [read(atom) for atom in eqn.invars]
            results = self._equation(jaxpr, eqn, operands, seen)
            env.update(zip(eqn.outvars, results, strict=True))
            if is_instrumented(eqn):
                self._record(jaxpr, position, operands, results, seen)
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, jaxpr: Any, eqn: Any, operands: list[Any], seen: list[_Seen]) -> list[Any]:
        name = eqn.primitive.name
        if any(jaxprs.contains(inner, SUMS) for inner in jaxprs.subjaxprs(eqn)):
            if name in _CALLS:
                inner, consts = jaxprs.open_with_consts(eqn.params[_CALLS[name]])
                return self.evaluate(inner, consts, operands, seen)
            if name == "scan":
                return self._scan(eqn.params, operands, seen)
        return jaxprs.bind(eqn, operands, jaxpr)

    def _scan(self, params: dict[str, Any], operands: list[Any], seen: list[_Seen]) -> list[Any]:
        body, consts = jaxprs.open_with_consts(params["jaxpr"])
        small_only = _Interpreter(self._num_replicas, {}, with_large=False)
        fixed, carried = jaxprs.scan_counts(params)
        constants, carry, xs = operands[:fixed], operands[fixed : fixed + carried], operands[fixed + carried :]
        inner_collectives: list[InstrumentedCollective] = []

        def one(carry: list[Any], x: list[Any]) -> tuple[list[Any], Any]:
            inner: list[_Seen] = []
            results = small_only.evaluate(body, consts, [*constants, *carry, *x], inner)
            inner_collectives[:] = [one for one, _, _ in inner]
            return results[:carried], (results[carried:], [(operand, result) for _, operand, result in inner])

        carry, (ys, values) = lax.scan(
            one, carry, xs, length=params["length"], reverse=params["reverse"], unroll=params["unroll"]
        )
        seen.extend((one, operand, result) for one, (operand, result) in zip(inner_collectives, values, strict=True))
        return [*carry, *ys]

    def _record(self, jaxpr: Any, position: int, operands: list[Any], results: list[Any], seen: list[_Seen]) -> None:
        eqn = jaxpr.eqns[position]
        for operand, result, out in zip(operands, results, eqn.outvars, strict=True):
            if np.size(operand) > MAX_FREQUENT_ELEMENTS and not self._with_large:
                continue
            by = mean_by(jaxpr, position, out, self._num_replicas)
            if by is not None and by != "own":
                result = mean_of_sum(result, self._num_replicas, by)
            name = self._names.get(out) or all_reduce_name(eqn)
            op: Literal["sum", "mean"] = "sum" if by is None else "mean"
            one = InstrumentedCollective(name, op, np.shape(operand), str(out.aval.dtype))
            seen += self._take(one, operand, result, out.aval.size * out.aval.dtype.itemsize)

    def _take(self, one: InstrumentedCollective, operand: Any, result: Any, nbytes: int) -> Iterator[_Seen]:
        if np.size(operand) <= MAX_LISTED_ELEMENTS:
            yield one, operand, result
            return
        is_whole = is_brought_whole(nbytes, self._num_replicas)
        if is_whole:  # of all steps of a call they would lie on the devices at once
            yield replace(one, keeps="one" if self._does_several else "each"), operand, result
        if self._does_several or not is_whole:
            summary = replace(one, is_summary=True, keeps="others" if is_whole else "each")
            yield summary, summary_words(operand, result), summary_words(result)


Division = Literal["own", "exact", "plain"]


def mean_by(jaxpr: Any, position: int, out: Any, num_replicas: int) -> Division | None:
    """How the all-reduce at ``position`` is a mean: by its ``own`` kind or by what divides its result. None: it is not.

    ``all_reduce("mean")`` is a psum whose result is at once divided ``exact``-ly, as float32 where it is narrower; a
    program may divide by the number of replicas itself.
    """
    if jaxpr.eqns[position].params.get("op") == "MEAN":
        return "own"
    wide: Any = out
    for eqn in jaxpr.eqns[position + 1 :]:
        if not eqn.invars:
            continue
        divided = eqn.invars[0]
        if eqn.primitive.name == "convert_element_type" and divided is out and out.aval.dtype.itemsize == 2:
            wide = eqn.outvars[0]
        if eqn.primitive is quotient_p and (divided is out or divided is wide):
            return "exact" if eqn.params["count"] == num_replicas else None
        if eqn.primitive.name == "div" and divided is out and jaxprs.is_literal(eqn.invars[1]):
            return "plain" if np.all(np.asarray(eqn.invars[1].val) == num_replicas) else None
    return None


def mean_of_sum(total: Any, num_replicas: int, by: Division) -> Any:
    """What a step makes of a sum that becomes a mean, to the last bit."""
    if by != "exact":
        return total / num_replicas
    wide = total.astype(jnp.float32) if total.dtype.itemsize == 2 else total
    return exact_quotient(wide, num_replicas).astype(total.dtype)


def means_of(traced: TracedStep, num_replicas: int) -> dict[Any, Division]:
    """Of the step's all-reduces at its top level, the outputs that are sums and become means, and how."""
    jaxpr = traced.jaxpr.jaxpr
    found = {
        out: mean_by(jaxpr, position, out, num_replicas)
        for position, eqn in enumerate(jaxpr.eqns)
        if is_instrumented(eqn)
        for out in eqn.outvars
    }
    return {out: by for out, by in found.items() if by is not None and by != "own"}


def has_instrumented(jaxpr: Any, *, large: bool) -> bool:
    """Tells whether a variant of this step would record arrays of more (or, not ``large``, at most) 32 elements."""
    for eqn in jaxpr.eqns:
        if is_instrumented(eqn) and any((var.aval.size > MAX_FREQUENT_ELEMENTS) == large for var in eqn.outvars):
            return True
        opens = eqn.primitive.name in _CALLS or (eqn.primitive.name == "scan" and not large)
        if opens and any(has_instrumented(inner, large=large) for inner in jaxprs.subjaxprs(eqn)):
            return True
    return False


def summary_words(array: Any, result: Any = None) -> jax.Array:
    """uint32[6 + 3 * buckets] as :class:`drumline.distribute.observe.SummaryOnDevice` reads it; made inside the step.

    Sums are those of the buckets' sums of scaled values: neither large nor small numbers are lost in them. With the
    ``result`` that the array is a part of, its cosine is over the elements that are finite in both.
    """
    buckets = _buckets(array)
    finite = jnp.isfinite(buckets)
    low = jnp.where(finite, buckets, jnp.float32(np.inf)).min(axis=1)
    high = jnp.where(finite, buckets, jnp.float32(-np.inf)).max(axis=1)
    scale = _scale(buckets, finite)
    scaled = jnp.where(finite, buckets / scale, jnp.float32(0))
    count = finite.sum(dtype=jnp.int32).astype(jnp.float32)
    mean = scaled.sum(axis=1).sum() / jnp.maximum(count, jnp.float32(1)) * scale
    norm = jnp.sqrt((scaled * scaled).sum(axis=1).sum()) * scale
    cosine = jnp.float32(np.nan) if result is None else _cosine(scaled, finite, _buckets(result))
    padding = np.zeros(buckets.shape[0], np.uint32)
    padding[-1] = buckets.size - np.size(array)
    not_finite = (~finite).sum(axis=1, dtype=jnp.uint32) - padding
    nans = jnp.isnan(buckets).sum(dtype=jnp.uint32) - padding[-1]
    checksum = lax.bitcast_convert_type(buckets, jnp.uint32).sum(dtype=jnp.uint32)
    floats = lax.bitcast_convert_type(jnp.stack([mean, norm, cosine]), jnp.uint32)
    counts = jnp.stack([nans, not_finite.sum(dtype=jnp.uint32) - nans, checksum])
    bounds = lax.bitcast_convert_type(jnp.concatenate([low, high]), jnp.uint32)
    return jnp.concatenate([floats, counts, bounds, not_finite])


def _buckets(array: Any) -> jax.Array:
    """[buckets, width], float32, filled up with NaN."""
    values = jnp.asarray(array).astype(jnp.float32).ravel()
    width = bucket_width(values.size)
    missing = -values.size % width
    return jnp.pad(values, (0, missing), constant_values=np.float32(np.nan)).reshape(-1, width)


def _scale(buckets: jax.Array, finite: jax.Array) -> jax.Array:
    """The largest finite absolute value; 1 where that is 0."""
    largest = jnp.where(finite, jnp.abs(buckets), jnp.float32(0)).max()
    return jnp.where(largest > 0, largest, jnp.float32(1))


def _cosine(scaled: jax.Array, finite: jax.Array, result: jax.Array) -> jax.Array:
    """NaN where one of both has no direction."""
    both = finite & jnp.isfinite(result)
    own = jnp.where(both, scaled, jnp.float32(0))
    other = jnp.where(both, result / _scale(result, jnp.isfinite(result)), jnp.float32(0))
    dot, own_square, other_square = ((a * b).sum(axis=1).sum() for a, b in ((own, other), (own, own), (other, other)))
    return dot / (jnp.sqrt(own_square) * jnp.sqrt(other_square))


def is_instrumented(eqn: Any) -> bool:
    """Tells whether an equation is a sum over all replicas, as an observer is shown them."""
    if eqn.primitive.name not in SUMS or eqn.params.get("uniform", False):
        return False
    if eqn.params.get("op") == "ONLY_FIRST_REPLICA" or eqn.params.get("axis_index_groups") is not None:
        return False
    return REPLICA_AXIS in eqn.params.get("axes", (REPLICA_AXIS,))
