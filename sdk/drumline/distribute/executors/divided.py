"""A step whose replicas have several devices each, without what XLA's partitioner can't divide over them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from drumline.distribute.combine.primitives import aggregate_p
from drumline.distribute.errors import InvalidValueError
from drumline.distribute.tracing import jaxprs

#: Those that XLA for CPUs turns from bfloat16 into float32 itself, which aborts where the mesh has further axes.
_REDUCTIONS = frozenset({"psum", "psum_invariant", "pmax", "pmin", "reduce_scatter", aggregate_p.name})
_UNEQUAL = "Inconsistent conditional sharding"
#: Inside of them the logical axes are bound: nothing is left for XLA to divide.
_CLOSED = frozenset({"shard_map"})


def dividable(closed: Any, *, is_cpu: bool) -> Any:
    """The jaxpr with whole operands of scatters, and on CPUs with reductions of bfloat16 in float32.

    A scatter of split rows into an array that is split otherwise aborts in XLA's partitioner.
    """

    def change(eqn: Any) -> Any:
        if eqn.primitive.name.startswith("scatter"):
            return jaxprs.replace_by(eqn, lambda *operands: _apply(eqn, [_whole(each) for each in operands]))
        if is_cpu and eqn.primitive.name in _REDUCTIONS and any(map(_is_bfloat16, eqn.invars)):
            return jaxprs.replace_by(eqn, lambda *operands: _apply_in_float32(eqn, operands))
        return eqn

    return closed.replace(jaxpr=jaxprs.map_equations(closed.jaxpr, change, _CLOSED))


def whole_where_paths_differ(closed: Any, leaves: list[Any]) -> list[Any]:
    """A step's arguments: whole on each device where the step has conditions, under which XLA must not exchange parts.

    A result that left an earlier step split comes in so.
    """
    if not jaxprs.contains(closed.jaxpr, frozenset({"cond", "while"})):
        return leaves
    return [_whole(leaf) for leaf in leaves]


def refuse_unequal_branches(error: jax.errors.JaxRuntimeError) -> None:
    """Raises InvalidValueError where XLA's complaint is that branches end split unequally; only it sees all splits."""
    if _UNEQUAL in str(error):
        raise InvalidValueError(
            "the branches of a cond or switch end split unequally over a replica's devices: split the result after it, "
            "or end each branch with the same split_to_logical_devices"
        ) from None


def _whole(value: Any) -> Any:
    return lax.with_sharding_constraint(value, P())


def _apply(eqn: Any, operands: Any) -> list[Any]:
    results = eqn.primitive.bind(*operands, **eqn.params)
    return list(results) if eqn.primitive.multiple_results else [results]


def _apply_in_float32(eqn: Any, operands: Any) -> list[Any]:
    wide = [
        operand.astype(jnp.float32) if _is_bfloat16(atom) else operand
        for atom, operand in zip(eqn.invars, operands, strict=True)
    ]
    return [result.astype(var.aval.dtype) for result, var in zip(_apply(eqn, wide), eqn.outvars, strict=True)]


def _is_bfloat16(atom: Any) -> bool:
    return bool(atom.aval.dtype == jnp.bfloat16)
